#!/bin/sh
# Lock every group of pyproject.toml with hashes: the only place that decides what is installed.
set -eu
cd "$(dirname "$0")/.."
lock() { # OUTPUT INPUT [FLAG ...]
    output=requirements/$1.txt
    shift
    uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-emit-package cloudfacts \
        --custom-compile-command "make lock" --output-file "$output" "$@"
}
lock bootstrap --python-version 3.11 --universal requirements/bootstrap.in
lock runtime --python-version 3.11 --universal --extra cli --extra program --extra twin pyproject.toml
for cloud in aws azure; do
    lock "$cloud" --python-version 3.11 --universal --constraint requirements/runtime.txt --extra program --extra policy --extra "$cloud" pyproject.toml
done
lock development --python-version 3.11 --universal --constraint requirements/runtime.txt --extra development pyproject.toml
# Installed as data, without dependencies.
lock models --no-deps --python-version 3.11 --universal --extra models pyproject.toml
lock account --no-deps --python-version 3.11 --universal --extra account pyproject.toml
lock s3-server --no-deps --python-version 3.11 --universal --extra s3-server pyproject.toml
# In addition to the torch, torchvision and numpy of the base image.
lock trainer --no-deps --python-version 3.11 --universal --constraint requirements/development.txt --extra trainer-image --extra account pyproject.toml
# For examples/, in addition to the trainer group.
lock examples --python-version 3.11 --universal --constraint requirements/development.txt --extra examples pyproject.toml
# For notebooks/, in addition to the development group.
lock notebooks --python-version 3.11 --universal --constraint requirements/development.txt --extra notebooks pyproject.toml
# For `make test-trackers`, in addition to the development group.
lock trackers --python-version 3.11 --universal --constraint requirements/development.txt --extra trackers pyproject.toml
# For benchmarks/comparison, in addition to the development group.
lock comparison --python-version 3.11 --universal --constraint requirements/development.txt --extra comparison pyproject.toml
# For `make site`, which needs nothing else.
lock docs --python-version 3.11 --universal --constraint requirements/development.txt --extra docs pyproject.toml
# For `make scan`, which has an environment of its own.
lock scan --python-version 3.11 --universal --extra scan pyproject.toml
# The images run Debian trixie's Python.
lock controller --python-version 3.13 --python-platform x86_64-manylinux_2_28 --extra controller pyproject.toml
