"""A cloud's own budget: it tells somebody by mail, and stops nothing."""
