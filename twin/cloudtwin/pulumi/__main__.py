"""Entry point of the language host: `python -P -m cloudtwin.pulumi VERSION ENGINE`."""

import sys

from cloudtwin.pulumi.plugin import import_only_protocol


def main() -> None:
    """Run the language host."""
    import_only_protocol()
    from cloudtwin.pulumi.language_host import serve

    version, *arguments = sys.argv[1:]
    serve(version, arguments)


main()
