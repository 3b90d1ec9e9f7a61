"""Entry point of the language host: `python -P -m cloudtwin.pulumi ENGINE`."""

import sys

from cloudtwin.pulumi.plugin import import_only_protocol


def main() -> None:
    """Run the language host."""
    import_only_protocol()
    from cloudtwin.pulumi.language_host import serve

    serve(sys.argv[1:])


main()
