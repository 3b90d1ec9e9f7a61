"""Recovery: workers of a new generation agree on the most advanced state and continue from it."""
