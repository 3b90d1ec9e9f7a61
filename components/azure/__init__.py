"""Azure: the network, the AKS cluster, its storage, registry and budget."""
