"""The kinds of sources: a folder, a tar archive, S3, Azure Blob Storage; `location` selects one."""
