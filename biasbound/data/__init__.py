"""Trajectories x⁰ … x^K: generated here, or read from everyone's formats."""
