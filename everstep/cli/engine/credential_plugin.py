"""Replacement of `aws` and `kubelogin` on a cloud of the twin.

The Kubernetes client runs it for a kubeconfig, as in the cloud:

    python -m everstep.cli.engine.credential_plugin aws KUBECONFIG eks get-token --cluster-name NAME ...

The real program prints a token for the user's role; the twin has one administrator, so this program prints
the administrator's certificate. It refuses arguments that the real program refuses, since a kubeconfig with wrong
arguments must not work on the twin either. It imports neither typer nor rich: it runs for every connection and must
respond within a tenth of a second.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

API_VERSION = "client.authentication.k8s.io/v1beta1"
AKS_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""Entra application of the API servers of all AKS clusters, which kubelogin requires as an argument."""

REQUIRED = {
    "aws": (("eks", "get-token"), ("--cluster-name",)),
    "kubelogin": (("get-token",), ("--login", "--server-id")),
}
"""The required words of each program, and the options that must have a value."""


def fault(program: str, arguments: Sequence[str]) -> str | None:
    """Return the error for arguments that the real program refuses or this replacement lacks; None if valid."""
    words, options = REQUIRED[program]
    positional = [word for word in arguments if not word.startswith("-")]
    if not set(words) <= set(positional):
        return f"this replacement supports only `{program} {' '.join(words)}`"
    missing = [option for option in options if not value_of(option, arguments)]
    if missing:
        return f"the following arguments are required: {', '.join(missing)}"
    if program == "kubelogin" and value_of("--server-id", arguments) != AKS_SERVER:
        return f"--server-id must be the id of AKS, {AKS_SERVER}"
    return None


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """Return the value of an option, given as `--name value` or `--name=value`; None if absent."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name != option:
            continue
        return value if equals else next(iter(arguments[index + 1 : index + 2]), None)
    return None


def credential(kubeconfig: str) -> str:
    """Return an ExecCredential with the client certificate of a kubeconfig's only user."""
    (user,) = yaml.safe_load(kubeconfig)["users"]
    return json.dumps(
        {
            "apiVersion": API_VERSION,
            "kind": "ExecCredential",
            "status": {
                "clientCertificateData": _text(user["user"]["client-certificate-data"]),
                "clientKeyData": _text(user["user"]["client-key-data"]),
            },
        }
    )


def _text(data: str) -> str:
    import base64

    return base64.b64decode(data).decode()


def main(program: str, path: Path, arguments: Sequence[str]) -> int:
    """Print the credential or an error, and return an exit code, as the real program does."""
    if problem := fault(program, arguments):
        print(f"{program}: {problem}", file=sys.stderr)
        return 255 if program == "aws" else 1
    if not path.exists():
        print(f"{program}: the twin's cluster does not exist yet ({path})", file=sys.stderr)
        return 254
    print(credential(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
