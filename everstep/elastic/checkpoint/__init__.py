"""Checkpoints: their files, the background writer, and the choice of the one to restore."""
