"""One module per stage, one function that makes its unit."""
