"""Linux system interfaces: namespaces, mounts, cgroups and processes."""
