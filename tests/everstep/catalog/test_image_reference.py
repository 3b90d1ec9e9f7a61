"""Image references are parsed as containerd parses them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from cloudtwin.toolchain.binaries import PROGRAMS
from hypothesis import given
from hypothesis import strategies as st

from everstep.catalog import image_reference
from everstep.catalog.image_reference import ImageReference

DIGEST = "sha256:" + "0a" * 32

part = st.from_regex(r"[a-z0-9]{1,4}(?:(?:[._]|__|-{1,3})[a-z0-9]{1,3}){0,2}", fullmatch=True)
paths = st.lists(part, min_size=1, max_size=4).map("/".join)
tags = st.from_regex(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,9}", fullmatch=True)
domains = st.sampled_from(
    ["ghcr.io", "localhost", "localhost:5000", "[::1]:5000", "Upper", "111122223333.dkr.ecr.us-east-1.amazonaws.com"]
)  # fmt: skip
texts = st.text(alphabet="aB0.:/@_-[]", max_size=14) | st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "docker.io/", "index.docker.io/", "localhost/", "ghcr.io/", "a:1/", "A/"]),
    paths | st.text(alphabet="aB/._-", max_size=6),
    st.sampled_from(["", ":", ":1", ":v_1.2-x", ":" + "t" * 128, ":" + "t" * 129, ":.x"]),
    st.sampled_from(
        ["", "@", f"@{DIGEST}", "@sha256:ab", f"@{DIGEST.upper()}", "@md5:" + "a" * 32]
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("torchelastic/kubernetes:0.1.0", "docker.io/torchelastic/kubernetes:0.1.0"),
        ("docker.io/torchelastic/kubernetes:0.1.0", "docker.io/torchelastic/kubernetes:0.1.0"),
        ("index.docker.io/busybox:1", "docker.io/library/busybox:1"),
        ("localhost/everstep/trainer:local", "localhost/everstep/trainer:local"),
        (f"ghcr.io/everstep/trainer:0.1.0@{DIGEST}", f"ghcr.io/everstep/trainer@{DIGEST}"),
    ],
)
def test_a_reference_is_completed_as_containerd_completes_it(text: str, expected: str) -> None:
    assert str(image_reference.parse(text)) == expected
    assert image_reference.is_same(text, expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no name"),
        ("ghcr.io/", "has no name"),
        ("ghcr.io/Team/trainer", "upper-case"),
        ("ghcr.io/team//trainer", "not a repository"),
        ("trainer:", "not a tag"),
        ("trainer@sha256:12", "not a digest"),
        ("-x.io/trainer", "not the host"),
        ("a" * 64, "image id"),
        ("ghcr.io/" + "a" * 256, "255"),
    ],
)
def test_a_text_that_is_not_a_reference_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        image_reference.parse(text)
    assert image_reference.canonical(text) == text


@given(domains, paths, tags)
def test_a_complete_reference_is_unchanged(domain: str, path: str, tag: str) -> None:
    text = f"{domain}/{path}:{tag}"

    reference = image_reference.parse(text)

    assert reference == ImageReference(domain, path, tag)
    assert str(reference) == text


@given(texts)
def test_completing_twice_changes_nothing(text: str) -> None:
    reference = image_reference.canonical(text)

    assert image_reference.canonical(reference) == reference


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a program that normalizes each line by the library distribution/reference, which containerd uses."""
    folder = tmp_path_factory.mktemp("oracle")
    module = PROGRAMS["registry"].folder
    for name in ("go.mod", "go.sum"):
        shutil.copy(module / name, folder)
    shutil.copy(Path(__file__).with_name("reference_oracle.go"), folder / "main.go")
    subprocess.run(
        ["go", "build", "-mod=mod", "-o", "oracle", "."], cwd=folder, check=True, timeout=300
    )
    return folder / "oracle"


@pytest.mark.twin
@pytest.mark.timeout(600)
def test_every_text_is_parsed_as_by_the_reference_implementation(oracle: Path) -> None:
    inputs: list[str] = []

    @given(texts)
    def collect(text: str) -> None:
        inputs.append(text)

    collect()
    result = subprocess.run(
        [str(oracle)], input="\n".join(inputs), capture_output=True, text=True, check=True, timeout=60
    )  # fmt: skip

    assert len(inputs) >= 100
    for text, expected in zip(inputs, result.stdout.splitlines(), strict=True):
        try:
            reference = str(image_reference.parse(text))
        except ValueError:
            reference = ""
        assert reference == expected, f"{text!r} means another image to containerd"
