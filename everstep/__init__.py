"""Everstep: elastic training on spot GPUs as code, and the training never loses a step."""
