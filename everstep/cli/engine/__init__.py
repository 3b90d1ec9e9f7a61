"""The driver of the Pulumi engine: workspaces, stack contexts, plugins, locks, and the order of `up` and `down`."""
