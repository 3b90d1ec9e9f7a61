"""Tells a node that its cloud is about to take it, and empties it in time."""
