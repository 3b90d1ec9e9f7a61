"""Staging of data: copy S3, Blob, a folder or a tar archive to the shared volume, resumable at any point.

`stage.stage` runs it. What to copy is decided in `plan`, without I/O; `spool` keeps lists of a million files on
disk, sorted, so that they are merged as streams; `journal` records which files are complete; `copying` copies
one file. `sources` has one module for each kind of source.
"""
