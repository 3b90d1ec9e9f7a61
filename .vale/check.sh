#!/bin/sh
# Check the words of the project: pages, comments, docstrings, messages and names. One line per finding.
set -eu
cd "$(dirname "$0")/.."
vale=$(go -C .vale tool -n vale)
prose=build/prose
rm -rf "$prose"
git ls-files -z '*.py' | xargs -0 .venv/bin/python .vale/extract.py "$prose"
git ls-files -z '*.md' '*.yaml' ':!CHANGELOG.md' | xargs -0 "$vale" --no-global --output=line > "$prose/findings" || true
"$vale" --no-global --output=line "$prose" >> "$prose/findings" || true
sed -e "s|^.*$prose/||" -e 's|\.py\.txt:|.py:|' "$prose/findings"
! grep -q . "$prose/findings"
