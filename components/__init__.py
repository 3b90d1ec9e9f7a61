"""What a stack declares: typed configuration in, Pulumi resources out."""
