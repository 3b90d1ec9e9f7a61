"""Addresses and virtual links of the twin's network."""
