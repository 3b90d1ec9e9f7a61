"""Names and numbers that several parts of Everstep share, each defined once.

The modules have constants and pure functions. They import only each other and the standard library, so that the Pulumi
program, the command line and the images of the controller and of the spot watcher can import them.
Facts about AWS and Azure are in the package `cloudfacts`.
"""
