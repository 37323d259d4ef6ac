"""Flows that are generated here."""
