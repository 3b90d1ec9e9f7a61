"""Checkpoints: files and the writer in the background."""
