"""Accounting: journals, metrics and the account of a worker's time."""
