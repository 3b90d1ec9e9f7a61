"""Lets a plugin speak the engine's protocol without the SDK that brings it."""

import importlib.util
import sys
import types


def import_protocol_alone() -> None:
    """Let `pulumi.runtime.proto` be imported without the rest of the SDK.

    The plain import executes the whole SDK first, automation API included: 0.45 s of processor time
    in each plugin of each command, and nothing of it is used here.
    """
    found = importlib.util.find_spec("pulumi")
    if found is None or found.submodule_search_locations is None:
        raise SystemExit(f"the Pulumi SDK is not installed in {sys.prefix}")
    (root,) = found.submodule_search_locations
    for name, folder in (("pulumi", root), ("pulumi.runtime", f"{root}/runtime")):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
