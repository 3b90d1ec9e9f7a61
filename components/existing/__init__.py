"""A cluster that exists already, with its own volume or a folder that all its nodes mount."""
