"""One training loop for every model."""
