"""Everstep's `live` next to torchft and torchrun: the same model and events on one machine."""
