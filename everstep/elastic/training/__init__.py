"""Elastic training: the public `Run`, its batches, and the state that a group shares."""
