"""The Kubernetes control plane, as processes in the network namespace of the twin's virtual switch."""
