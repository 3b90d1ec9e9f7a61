"""What the SDKs say about each resource type: names, types, required fields, enums.

The wheels hold no schema, but their argument classes are one. Importing them costs a provider up
to a second in every command, so each type is extracted once per SDK version into the cache.

Pure: `model`, `check`. Shell: `extract` (imports the SDK, in a process of its own), `store`.
"""
