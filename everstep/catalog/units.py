"""Units of time."""

HOUR_SECONDS = 3600.0
