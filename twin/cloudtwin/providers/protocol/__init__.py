"""The Pulumi engine's protocol as every resource provider needs it: values, differences, messages, the gRPC service."""
