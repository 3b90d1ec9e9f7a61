"""Entry point of both plugins: `python -P -m twin.pulumi language|kubernetes ENGINE`."""

import sys

from twin.pulumi.protocol import import_protocol_alone


def main() -> None:
    """Become the plugin that the first argument names."""
    import_protocol_alone()
    plugin, arguments = sys.argv[1], sys.argv[2:]
    if plugin == "language":
        from twin.pulumi.language_host import serve
    else:
        from twin.pulumi.kubernetes.server import serve
    serve(arguments)


main()
