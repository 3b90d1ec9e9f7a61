"""Generators of docs/configuration.md, docs/metrics.md and stacks/README.md, and the hooks of the site."""
