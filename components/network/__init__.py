"""The network that a cluster's nodes are in: made, or the user's own."""
