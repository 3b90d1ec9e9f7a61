"""A `kubernetes` provider for the Pulumi engine.

Server-side apply, readiness, drift and clean deletion.

It speaks the engine's gRPC interface directly. The SDK's experimental provider class hides the old
inputs from `diff`, which then has to smuggle them through the outputs; here they arrive as the
engine sends them.

Pure: `convert`, `objects`, `diff`, `immutable`, `readiness`, `live`, `settings`. Shell: `cluster`,
`wait`, `operations`, `server`.
"""
