"""Scan the Kubernetes objects of the stacks, the Dockerfiles and the workflows with checkov.

    make scan

The table "Findings of scanners" of docs/security.md lists the accepted findings with reasons. The exit status is 1 for
a finding that is not in it, and for an entry without a finding.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.scan.accepted import (
    AcceptedFinding,
    Finding,
    parse_accepted,
    stale_entries,
    unaccepted_findings,
)
from tests.scan.manifests import write_manifests

REPOSITORY = Path(__file__).resolve().parents[2]
SECURITY_PAGE = REPOSITORY / "docs" / "security.md"
SOURCES = ("controller", "etcd", "spot", "trainer", "twin", ".github")


def main() -> None:
    """Scan and print the findings without an entry and the entries without a finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkov", type=Path, required=True, help="the scanner's executable")
    options = parser.parse_args()
    accepted = parse_accepted(SECURITY_PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        write_manifests(Path(folder))
        findings = scan(options.checkov, Path(folder), ["kubernetes"])
    for source in SOURCES:
        findings |= scan(options.checkov, REPOSITORY / source, ["dockerfile", "github_actions"])
    sys.exit(report(findings, accepted))


def scan(checkov: Path, folder: Path, frameworks: list[str]) -> set[Finding]:
    """Return the findings of a folder.

    Raises:
        RuntimeError: the scanner failed, or could not read a file.
    """
    command = [str(checkov), "--directory", str(folder), "--framework", *frameworks]
    command += ["--compact", "--quiet", "--output", "json", "--soft-fail"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    output: Any = json.loads(result.stdout)
    reports = [
        part for part in (output if isinstance(output, list) else [output]) if "results" in part
    ]
    if errors := sum(part["summary"]["parsing_errors"] for part in reports):
        raise RuntimeError(f"the scanner could not read {errors} files of {folder}")
    return {
        Finding(check["check_id"], check["check_name"], check["resource"].strip("/"))
        for part in reports
        for check in part["results"]["failed_checks"]
    }


def report(findings: set[Finding], accepted: list[AcceptedFinding]) -> int:
    """Print unaccepted findings and stale entries; return the exit status."""
    unaccepted = unaccepted_findings(findings, accepted)
    stale = stale_entries(findings, accepted)
    for finding in unaccepted:
        print(f"not accepted: {finding.check} at {finding.resource}: {finding.rule}")
    for entry in stale:
        print(f"accepted without a finding: {entry.check} at {', '.join(entry.resources)}")
    if unaccepted or stale:
        print(f"Fix them, or change the table in {SECURITY_PAGE.relative_to(REPOSITORY)}.")
        return 1
    print(f"{len(findings)} findings, all accepted.")
    return 0


if __name__ == "__main__":
    main()
