"""Data order: the samples of each step and of each worker."""
