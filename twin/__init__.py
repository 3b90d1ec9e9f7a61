"""A machine that behaves as a cloud: real Kubernetes nodes in namespaces of one Linux machine."""
