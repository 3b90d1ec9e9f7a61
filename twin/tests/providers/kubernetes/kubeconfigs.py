"""Kubeconfigs of clusters that a test names by their address."""

import json


def kubeconfig(server: str, token: str = "t", ca: str = "") -> str:
    """Return a kubeconfig with one cluster and a user with a token."""
    authority = {"certificate-authority-data": ca} if ca else {}
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": server, **authority}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    })  # fmt: skip
