"""Entry point of the providers: `python -P -m cloudtwin.providers kubernetes|aws|azure-native ENGINE`."""

import sys
from collections.abc import Sequence

from cloudtwin.providers.install import CLOUDS
from cloudtwin.pulumi.plugin import import_only_protocol


def main() -> None:
    """Run the provider that the first argument names."""
    import_only_protocol()
    name, arguments = sys.argv[1], sys.argv[2:]
    if name == "kubernetes":
        from cloudtwin.providers.kubernetes.server import serve

        serve(arguments)
    else:
        _serve_cloud(name, arguments)


def _serve_cloud(name: str, arguments: Sequence[str]) -> None:
    """Run the provider of a cloud."""
    if name not in CLOUDS:
        raise SystemExit(f"the twin has no cloud {name!r}; it has {' and '.join(CLOUDS)}")
    from cloudtwin.providers.server import serve

    if name == "aws":
        from cloudtwin.providers.aws import CLOUD
    else:
        from cloudtwin.providers.azure import CLOUD
    serve(CLOUD, arguments)


main()
