"""Schemas of resource types, read from the SDKs: names, types, required fields, enumerations.

The wheels contain no schema file; schemas are extracted from their argument classes. Importing an SDK
costs up to a second, so each type is extracted once per SDK version into the cache.

Pure: `model`, `check`. With effects: `extract` (imports the SDK, in a separate process), `store`, `limits`.
"""
