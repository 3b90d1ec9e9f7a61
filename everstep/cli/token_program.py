"""Stands in for `aws` and `kubelogin` where the cloud is the twin's.

Run by the Kubernetes client on behalf of a kubeconfig, just as in the cloud:

    python -m everstep.cli.token_program aws KUBECONFIG eks get-token --cluster-name NAME ...

A real one would print a token that stands for the user's role; the twin knows one administrator, so
its certificate is printed. What the real program would refuse is refused: a kubeconfig that asks
for a token in the wrong way must not work here either. No typer, no rich: it runs for every
connection, and answers in a tenth of a second.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

API_VERSION = "client.authentication.k8s.io/v1beta1"
AKS_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""The application that stands for the API servers of all AKS clusters; kubelogin must name it."""

NEEDED = {
    "aws": (("eks", "get-token"), ("--cluster-name",)),
    "kubelogin": (("get-token",), ("--login", "--server-id")),
}
"""The words that each program must be given, and options that must have a value."""


def fault(program: str, arguments: Sequence[str]) -> str | None:
    """What the real program would find wrong with its arguments, None if nothing."""
    words, options = NEEDED[program]
    spoken = [word for word in arguments if not word.startswith("-")]
    if not set(words) <= set(spoken):
        return f"this stand-in knows `{program} {' '.join(words)}` only"
    lacking = [option for option in options if not value_of(option, arguments)]
    if lacking:
        return f"the following arguments are required: {', '.join(lacking)}"
    if program == "kubelogin" and value_of("--server-id", arguments) != AKS_SERVER:
        return f"--server-id must be that of AKS, {AKS_SERVER}"
    return None


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """The value of an option, as `--name value` or `--name=value`."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name != option:
            continue
        return value if equals else next(iter(arguments[index + 1 : index + 2]), None)
    return None


def credential(kubeconfig: str) -> str:
    """An ExecCredential with the client certificate of a kubeconfig's only user."""
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
    """Answer as the program would."""
    if problem := fault(program, arguments):
        print(f"{program}: {problem}", file=sys.stderr)
        return 255 if program == "aws" else 1
    if not path.exists():
        print(f"{program}: the twin's cluster does not stand yet ({path})", file=sys.stderr)
        return 254
    print(credential(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
