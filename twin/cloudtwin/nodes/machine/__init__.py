"""One machine: its configuration, its first process and the services in it."""
