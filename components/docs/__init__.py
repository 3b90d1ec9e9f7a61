"""Generators of documentation from the configuration: docs/configuration.md and stacks/README.md."""
