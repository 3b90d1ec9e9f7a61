"""Configuration of all tests: they use the command line's cache of builds and its state folder."""

from everstep.cli.twin_settings import configure_twin

configure_twin()
