#!/bin/sh
# Check the words of the project: pages, comments, docstrings, messages and names. One line per finding.
set -eu
cd "$(dirname "$0")/.."
vale=$(go -C .vale tool -n vale)
prose=build/prose
rm -rf "$prose"

# Vale exits with 1 if it has findings. Any other failure, such as 2 for rules that it cannot read, is not a check:
# 255 makes xargs stop and fail.
check_files() {
  xargs -0 sh -c '"$0" --no-global --output=line "$@" || [ $? -eq 1 ] || exit 255' "$vale"
}

git ls-files -z '*.py' | xargs -0 .venv/bin/python .vale/extract.py "$prose"
git ls-files -z '*.md' '*.yaml' ':!CHANGELOG.md' | check_files > "$prose/findings"
printf '%s\0' "$prose" | check_files >> "$prose/findings"
sed -e "s|^.*$prose/||" -e 's|\.py\.txt:|.py:|' "$prose/findings"
! grep -q . "$prose/findings"
