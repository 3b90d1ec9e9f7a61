"""Entry point of the providers: `python -P -m twin.clouds aws|azure-native ENGINE`."""

import sys

from twin.clouds.install import CLOUDS
from twin.pulumi.protocol import import_protocol_alone


def main() -> None:
    """Become the provider of the cloud that the first argument names."""
    import_protocol_alone()
    name, arguments = sys.argv[1], sys.argv[2:]
    if name not in CLOUDS:
        raise SystemExit(f"the twin has no cloud {name!r}; it has {' and '.join(CLOUDS)}")
    from twin.clouds.server import serve

    if name == "aws":
        from twin.clouds.aws import CLOUD
    else:
        from twin.clouds.azure import CLOUD
    serve(CLOUD, arguments)


main()
