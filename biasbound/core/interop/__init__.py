"""Schedules and denoisers of neighbouring libraries, and ours in theirs.

A level here is σ with ᾱ = 1 − σ², for y_t = √ᾱ y + σ ε. The neighbours say the same in other words:

    betas, diffusers     β_t = 1 − ᾱ_t/ᾱ_{t−1}, for t = 0 … T with ᾱ_{−1} = 1
    EDM, k-diffusion     the ratio σ/√ᾱ, for y_t/√ᾱ = y + (σ/√ᾱ) ε
    azula                (α, σ) = (√ᾱ, σ) as a function of a time between 0 and 1

Every module has functions both ways. Each library is imported where it is used, and nothing here needs one to be read.
"""
