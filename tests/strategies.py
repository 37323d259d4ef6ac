"""Random levels and fields for property tests."""

import torch
from hypothesis import strategies as st

LOWEST, HIGHEST = 1e-6, 1 - 1e-9

levels = st.floats(LOWEST, HIGHEST)
ladders = st.lists(levels, min_size=1, max_size=8, unique=True).map(sorted)  # for Schedule(…)
dtypes = st.sampled_from([torch.float32, torch.float64])
shapes = st.one_of(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 17)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
)
seeds = st.integers(0, 2**31)


def fields(shape, dtype, seed, count):
    """`count` independent Gaussian fields."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator, dtype=dtype) for _ in range(count)]


def column(per_sample, like):
    """One number per sample, ready to multiply a field."""
    return per_sample.reshape(-1, *[1] * (like.ndim - 1))


def signal_and_noise(log_snr, like):
    """(a, s) with a² + s² = 1 from the log-SNR that a network is told."""
    return column(torch.sigmoid(log_snr).sqrt(), like), column(torch.sigmoid(-log_snr).sqrt(), like)
