"""Bias-constrained noise schedules for diffusion emulators of PDEs."""
