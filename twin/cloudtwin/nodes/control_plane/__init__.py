"""The Kubernetes control plane, as processes next to the virtual switch."""
