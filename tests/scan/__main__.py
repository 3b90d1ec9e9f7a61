"""Scan what the stacks declare in Kubernetes, the Dockerfiles and the workflows with checkov.

    make scan

Every finding has an answer in the table "Findings of scanners" of docs/security.md: why it stays. The exit status is 1
for a finding without an answer, and for an answer without a finding.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.scan.answers import Answer, Finding, parse_answers, unanswered, unused
from tests.scan.manifests import write_manifests

REPOSITORY = Path(__file__).resolve().parents[2]
ANSWERS = REPOSITORY / "docs" / "security.md"
SOURCES = ("controller", "etcd", "spot", "trainer", "twin", ".github")


def main() -> None:
    """Scan and print the findings without an answer and the answers without a finding."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkov", type=Path, required=True, help="the scanner's executable")
    options = parser.parse_args()
    answers = parse_answers(ANSWERS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        write_manifests(Path(folder))
        findings = scan(options.checkov, Path(folder), ["kubernetes"])
    for source in SOURCES:
        findings |= scan(options.checkov, REPOSITORY / source, ["dockerfile", "github_actions"])
    sys.exit(report(findings, answers))


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
    parsed: Any = json.loads(result.stdout)
    reports = [
        part for part in (parsed if isinstance(parsed, list) else [parsed]) if "results" in part
    ]
    if errors := sum(part["summary"]["parsing_errors"] for part in reports):
        raise RuntimeError(f"the scanner could not read {errors} files of {folder}")
    return {
        Finding(failed["check_id"], failed["check_name"], failed["resource"].strip("/"))
        for part in reports
        for failed in part["results"]["failed_checks"]
    }


def report(findings: set[Finding], answers: list[Answer]) -> int:
    """Print missing and stale answers; return the exit status."""
    missing, stale = unanswered(findings, answers), unused(findings, answers)
    for finding in missing:
        print(f"without an answer: {finding.check} at {finding.resource}: {finding.rule}")
    for answer in stale:
        print(f"without a finding: {answer.check} at {', '.join(answer.resources)}")
    if missing or stale:
        print(f"Fix them, or change the table in {ANSWERS.relative_to(REPOSITORY)}.")
        return 1
    print(f"{len(findings)} findings, each with an answer.")
    return 0


if __name__ == "__main__":
    main()
