"""The programs that the twin runs: their sources, and the versions accepted from PATH.

The `go.mod` of each module folder is the only source of a version: the build, the version that a program reports
and the check of programs on PATH all read it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MODULES_FOLDER = Path(__file__).parent
KUBERNETES_VERSION_PACKAGE = "k8s.io/component-base/version"


class VersionPrecision(IntEnum):
    """Number of leading parts of a version that must be equal."""

    MINOR = 2
    PATCH = 3


@dataclass(frozen=True)
class VersionProbe:
    """Version check of a program on PATH.

    Attributes:
        arguments: arguments with which the program prints its version.
        precision: leading parts of the version that must be equal to the required version.
    """

    arguments: tuple[str, ...]
    precision: VersionPrecision


@dataclass(frozen=True)
class Module:
    """One Go module folder; its programs share dependencies and are built together.

    Attributes:
        name: the folder next to this file.
        origin: the Go module that determines the version of the programs; empty for the twin's own modules.
        programs: name of each program -> the Go package it is built from.
        probe: check of a program on PATH; None to always build.
        ldflags: linker flags beyond stripping; `{version}` and `{minor}` are filled in.
        tags: Go build tags.
    """

    name: str
    origin: str
    programs: Mapping[str, str]
    probe: VersionProbe | None = None
    ldflags: str = ""
    tags: str = ""

    @property
    def folder(self) -> Path:
        """The folder with go.mod and go.sum."""
        return MODULES_FOLDER / self.name

    @property
    def version(self) -> str:
        """The version in go.mod, such as `1.36.3`; empty for one of the twin's own modules."""
        return required_version((self.folder / "go.mod").read_text(), self.origin)

    @property
    def linker_flags(self) -> str:
        """All linker flags: strip symbol tables, set the reported version."""
        version = self.version
        minor = version.split(".")[1] if version else ""
        return " ".join(["-s -w", self.ldflags.format(version=version, minor=minor)]).strip()


KUBERNETES_PROGRAMS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
)

# Quick builds first, so that missing network or disk space is reported in seconds.
MODULES = (
    Module("pause", origin="", programs={"pause": "."}),
    Module("stand_in", origin="", programs={"stand-in": "."}),
    Module(
        "registry",
        origin="github.com/distribution/distribution/v3",
        programs={"registry": "."},
    ),
    Module(
        "etcd",
        origin="go.etcd.io/etcd/server/v3",
        programs={"etcd": "go.etcd.io/etcd/server/v3"},
        probe=VersionProbe(("--version",), VersionPrecision.MINOR),
    ),
    Module(
        "coredns",
        origin="github.com/coredns/coredns",
        programs={"coredns": "."},
        probe=VersionProbe(("-version",), VersionPrecision.MINOR),
    ),
    Module(
        "pulumi",
        origin="github.com/pulumi/pulumi/pkg/v3",
        programs={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        probe=VersionProbe(("version",), VersionPrecision.PATCH),
        ldflags="-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",
        tags="osusergo,grpcnotrace",
    ),
    Module(
        "kubernetes",
        origin="k8s.io/kubernetes",
        programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS},
        probe=VersionProbe(("--version",), VersionPrecision.MINOR),
        ldflags=f"-X {KUBERNETES_VERSION_PACKAGE}.gitVersion=v{{version}}"
        f" -X {KUBERNETES_VERSION_PACKAGE}.gitMajor=1"
        f" -X {KUBERNETES_VERSION_PACKAGE}.gitMinor={{minor}}",
    ),
)

PROGRAMS: Mapping[str, Module] = {name: module for module in MODULES for name in module.programs}


def required_version(go_mod: str, origin: str) -> str:
    """Return the version, without its `v`, that a go.mod requires of a module; or ""."""
    match = re.search(rf"^\s*(?:require\s+)?{re.escape(origin)} v(\S+)", go_mod, re.MULTILINE)
    return match[1] if origin and match else ""


def reported_version(output: str) -> str:
    """Return the first version of three numbers in the output of a program, or ""."""
    match = re.search(r"\d+\.\d+\.\d+", output)
    return match[0] if match else ""


def is_accepted(reported: str, required: str, precision: VersionPrecision) -> bool:
    """Return True if a version found on PATH can replace the required version."""
    required_parts = required.split(".")[:precision]
    return bool(required) and reported.split(".")[:precision] == required_parts
