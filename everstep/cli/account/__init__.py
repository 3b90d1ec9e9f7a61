"""Checks of a cloud account for a stack, before anything is bought."""
