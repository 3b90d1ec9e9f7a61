"""A cluster that exists already, with a folder that all its nodes mount."""
