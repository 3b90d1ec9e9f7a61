"""Entry point of the provider's process: `python -m twin.pulumi.kubernetes ENGINE`."""

from twin.pulumi.kubernetes.server import main

main()
