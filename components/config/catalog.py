"""What the clouds have: regions, zones, Kubernetes versions, machine types with GPUs."""

AWS_ZONES: dict[str, str] = {"us-east-1": "abcdef"}
