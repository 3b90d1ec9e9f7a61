"""Components of a stack: its typed configuration, and the Pulumi resources that it declares."""
