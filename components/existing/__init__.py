"""A cluster that already exists, with its own volume or a folder that all its nodes mount."""
