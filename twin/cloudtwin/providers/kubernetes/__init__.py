"""A stand-in for the official `kubernetes` provider.

Pure: `config`, `diff`, `immutable`, `jsonpath`, `live`, `manifests`, `objects`, `readiness`,
`wait_for`. With effects: `connection`, `client`, `wait`, `operations`, and `server`, its gRPC service.
"""
