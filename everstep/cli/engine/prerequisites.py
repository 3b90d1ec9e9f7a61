"""Requirements of the twin on this machine: programs, Debian packages, images.

`everstep up` builds or installs missing requirements; `everstep doctor` reports them without building.
"""

from cloudtwin.facade import TwinError

from everstep.cli.engine.host_checks import HostCheck
from everstep.cli.engine.plugins import CLOUDS, has_sdk, install_command
from everstep.progress import Progress

TOOLS = (
    "pulumi",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "pause",
)


def build(progress: Progress) -> tuple[str, ...]:
    """Build or install missing packages, programs and images; return the references of the images.

    Raises:
        TwinError: a package, program or image cannot be built or installed here.
    """
    from cloudtwin.facade import ensure_images, ensure_packages, ensure_tools

    from everstep.cli.images import RECIPES

    ensure_packages(progress)
    ensure_tools(TOOLS, progress)
    return ensure_images(progress, RECIPES).references


# --- checks for `everstep doctor` ---------------------------------------------------------------


def programs() -> list[HostCheck]:
    """Return a check for each program of the twin, and for Go if a program is not built yet."""
    checks = [_program(name) for name in TOOLS]
    to_build = [check for check in checks if check.pending]
    return [*checks, *([_go()] if to_build else [])]


def _program(name: str) -> HostCheck:
    from cloudtwin.facade import program_status

    program = program_status(name)
    version = program.version or "Everstep's own"
    if program.on_path:
        return HostCheck(name, passed=True, observed=f"{version}, {program.on_path}")
    if program.built:
        return HostCheck(name, passed=True, observed=f"{version}, built")
    return HostCheck(
        name, passed=True, observed="not built yet", fix="The first `up` builds it.", pending=True
    )


def _go() -> HostCheck:
    """Return a check for Go, which only builds of programs need."""
    from cloudtwin.facade import go_version

    try:
        return HostCheck("go", passed=True, observed=f"{go_version()}, builds missing programs")
    except TwinError as error:
        return HostCheck("go", passed=False, observed=error.problem, fix=error.fix)


def images() -> list[HostCheck]:
    """Return a check for images; only `up` detects that their sources changed."""
    from cloudtwin.facade import images_are_built

    if images_are_built():
        return [HostCheck("images", passed=True, observed="built")]
    fix = "The first `up` builds them; it takes minutes."
    return [HostCheck("images", passed=True, observed="not built yet", fix=fix, pending=True)]


def packages(*, may_install: bool) -> list[HostCheck]:
    """Return a check for all Debian packages, and one for each that is missing.

    Args:
        may_install: True if `up` can install them on this machine.
    """
    from cloudtwin.facade import packages as debian_packages

    required, missing = debian_packages()
    summary = HostCheck(
        "from Debian",
        passed=True,
        observed=f"{len(required) - len(missing)} of {len(required)} are installed",
    )
    return [
        summary,
        *(_package(package.name, package.purpose, may_install=may_install) for package in missing),
    ]


def _package(name: str, purpose: str, *, may_install: bool) -> HostCheck:
    if may_install:
        fix = "The first `up` installs it."
        return HostCheck(name, passed=True, observed=f"missing; {purpose}", fix=fix, pending=True)
    fix = f"As root: apt-get install --no-install-recommends {name}"
    return HostCheck(name, passed=False, observed=f"missing; {purpose}", fix=fix)


def sdks() -> list[HostCheck]:
    """Return a check for the SDK of each cloud, which only stacks of that cloud need."""
    return [
        HostCheck(
            f"SDK for {cloud.name}",
            passed=True,
            observed=f"{cloud.package} is {'installed' if installed else 'not installed'}",
            fix="" if installed else f"For its stacks: {install_command(cloud)}",
            pending=not installed,
        )
        for cloud in CLOUDS.values()
        for installed in [has_sdk(cloud)]
    ]
