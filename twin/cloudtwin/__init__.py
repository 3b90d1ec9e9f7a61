"""A twin of AWS and Azure on one Linux machine: strict Pulumi providers that start real Kubernetes nodes."""
