"""Which programs the twin runs, where each is built from, and which version of it will do.

The versions stand in the `go.mod` beside each module folder and nowhere else: what is built, what a
program reports of itself and what is accepted from PATH are all read from there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

MODULES_FOLDER = Path(__file__).parent
KUBERNETES_VERSION_VARIABLES = "k8s.io/component-base/version"


class Precision(IntEnum):
    """How many parts of a version a program found on PATH must share with ours."""

    MINOR = 2
    PATCH = 3


@dataclass(frozen=True)
class Probe:
    """How a program on PATH is asked for its version."""

    arguments: tuple[str, ...]
    precision: Precision


@dataclass(frozen=True)
class Module:
    """One Go module folder; its programs share dependencies and are built together.

    Attributes:
        name: the folder under twin/toolchain.
        origin: the Go module whose version is the programs' version.
        programs: name of each program -> the Go package it is built from.
        probe: how to ask a program on PATH; None where only our own build will do.
        ldflags: linker flags beyond stripping; `{version}` and `{minor}` are filled in.
        tags: Go build tags.
    """

    name: str
    origin: str
    programs: Mapping[str, str]
    probe: Probe | None = None
    ldflags: str = ""
    tags: str = ""

    @property
    def folder(self) -> Path:
        """Where go.mod and go.sum lie."""
        return MODULES_FOLDER / self.name

    @property
    def version(self) -> str:
        """The version that go.mod asks for, such as `1.36.3`; empty for a module of our own."""
        return required_version((self.folder / "go.mod").read_text(), self.origin)

    @property
    def linker_flags(self) -> str:
        """All linker flags: without symbol tables, reporting the right version."""
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

# Quick ones first: a fault of the machine (no network, no space) shows itself in seconds.
MODULES = (
    Module("pause", origin="", programs={"pause": "."}),
    Module("stand_in", origin="", programs={"stand-in": "."}),
    Module(
        "etcd",
        origin="go.etcd.io/etcd/server/v3",
        programs={"etcd": "go.etcd.io/etcd/server/v3"},
        probe=Probe(("--version",), Precision.MINOR),
    ),
    Module(
        "coredns",
        origin="github.com/coredns/coredns",
        programs={"coredns": "."},
        probe=Probe(("-version",), Precision.MINOR),
    ),
    Module(
        "pulumi",
        origin="github.com/pulumi/pulumi/pkg/v3",
        programs={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
        probe=Probe(("version",), Precision.PATCH),
        ldflags="-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",
        tags="osusergo,grpcnotrace",
    ),
    Module(
        "kubernetes",
        origin="k8s.io/kubernetes",
        programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_PROGRAMS},
        probe=Probe(("--version",), Precision.MINOR),
        ldflags=f"-X {KUBERNETES_VERSION_VARIABLES}.gitVersion=v{{version}}"
        f" -X {KUBERNETES_VERSION_VARIABLES}.gitMajor=1"
        f" -X {KUBERNETES_VERSION_VARIABLES}.gitMinor={{minor}}",
    ),
)

PROGRAMS: Mapping[str, Module] = {name: module for module in MODULES for name in module.programs}


def required_version(go_mod: str, origin: str) -> str:
    """Return the version, without its `v`, that a go.mod requires of a module; or ""."""
    found = re.search(rf"^\s*(?:require\s+)?{re.escape(origin)} v(\S+)", go_mod, re.MULTILINE)
    return found[1] if origin and found else ""


def reported_version(output: str) -> str:
    """Return the first version of three numbers in what a program printed of itself, or ""."""
    found = re.search(r"\d+\.\d+\.\d+", output)
    return found[0] if found else ""


def will_do(found: str, wanted: str, precision: Precision) -> bool:
    """Tell whether a version found on PATH can stand in for the one we would build."""
    ours = wanted.split(".")[:precision]
    return bool(wanted) and found.split(".")[:precision] == ours
