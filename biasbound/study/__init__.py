"""Studies: from a config to results, resumable."""
