"""Entry point of both plugins: `python -P -m cloudtwin.pulumi language|kubernetes ENGINE`."""

import sys

from cloudtwin.pulumi.plugin import import_only_protocol


def main() -> None:
    """Run the plugin that the first argument names."""
    import_only_protocol()
    plugin, arguments = sys.argv[1], sys.argv[2:]
    if plugin == "language":
        from cloudtwin.pulumi.language_host import serve
    else:
        from cloudtwin.providers.kubernetes.server import serve
    serve(arguments)


main()
