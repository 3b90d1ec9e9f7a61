"""Everstep: elastic training on spot GPUs as code."""
