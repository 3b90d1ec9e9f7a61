"""AWS: the network, the EKS cluster, its storage, registry and budget."""
