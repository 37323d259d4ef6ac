"""The paper on callables and tensors: noise, schedules, denoisers, the chain, biases, the search."""
