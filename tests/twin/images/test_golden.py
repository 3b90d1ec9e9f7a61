"""A real containerd, filled with images of a few bytes."""

import io
import subprocess
import sys
import tarfile

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin import images
from twin.images import ImageStore, golden, layout, recipes, store
from twin.images.golden import CONTENT, Source

pytestmark = pytest.mark.twin
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
DATABASES = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
]


def image(folder, name, content):
    """Make the layout of an image that holds one file."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / f"{name}.layer", "w") as layer:
        entry = tarfile.TarInfo("greeting")
        entry.size = len(content)
        layer.addfile(entry, io.BytesIO(content))
    target = folder / f"{name}-{content.decode()}"
    layout.single_layer(target, folder / f"{name}.layer", f"localhost/test/{name}:local", {})
    return Source(target)


def greetings(root):
    return {path.read_bytes() for path in (root / SNAPSHOTS).glob("*/fs/greeting")}


@pytest.fixture
def filled(tmp_path):
    root = tmp_path / "store" / "root"
    sources = [image(tmp_path / "made", "a", b"hello"), image(tmp_path / "made", "b", b"salut")]
    references = golden.fill(root, sources)
    return ImageStore(root, "key", references)


def test_a_root_holds_every_image_unpacked(filled):
    assert filled.references == ("localhost/test/a:local", "localhost/test/b:local")
    assert greetings(filled.root) == {b"hello", b"salut"}


def test_nodes_share_what_never_changes_and_own_their_databases(filled, tmp_path):
    images.clone(filled, tmp_path / "node" / "containerd")

    for path in filled.root.rglob("*"):
        copy = tmp_path / "node" / "containerd" / path.relative_to(filled.root)
        assert copy.lstat().st_mode == path.lstat().st_mode
        if path.is_file():
            is_database = str(path.relative_to(filled.root)) in DATABASES
            assert copy.samefile(path) is not is_database, path
    assert all((filled.root / name).exists() for name in DATABASES)


def test_a_containerd_on_a_clone_finds_every_image_complete_and_leaves_the_store_alone(
    filled, tmp_path
):
    before = {path: path.lstat().st_mtime_ns for path in filled.root.rglob("*") if path.is_file()}
    node = tmp_path / "node" / "containerd"
    images.clone(filled, node)

    assert golden.fill(node, [image(tmp_path / "made", "c", b"hola")]) == (
        "localhost/test/c:local",
    )

    assert greetings(node) == {b"hola"}, "the images that are wanted no more are gone"
    assert greetings(filled.root) == {b"hello", b"salut"}
    assert before == {path: path.lstat().st_mtime_ns for path in before}


def test_a_store_grows_out_of_the_last_one(filled, tmp_path):
    root = tmp_path / "next" / "root"
    golden.copy(filled.root, root)
    kept = Source(next((tmp_path / "made").glob("b-salut")))

    golden.fill(root, [image(tmp_path / "made", "a", b"servus"), kept])

    assert greetings(root) == {b"servus", b"salut"}
    assert len(list((root / CONTENT).iterdir())) == 6  # manifest, config and layer of each


def test_an_archive_of_others_is_loaded_under_its_own_name(tmp_path):
    made = image(tmp_path / "made", "theirs", b"hello").layout
    archive = tmp_path / "theirs.tar"
    with archive.open("wb") as out:
        layout.write_archive(made, "registry.test/team/theirs:1.0", out, known=())

    references = golden.fill(tmp_path / "store" / "root", [Source(archive)])

    assert references == ("registry.test/team/theirs:1.0",)


def test_a_broken_archive_is_named(tmp_path):
    source = image(tmp_path / "made", "a", b"hello")
    for blob in (source.layout / "blobs" / "sha256").iterdir():
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")

    with pytest.raises(EverstepError, match=r"containerd refuses .*a-hello"):
        golden.fill(tmp_path / "store" / "root", [source])


def test_a_layout_and_a_store_keep_equal_bytes_once(filled, tmp_path):
    made = next((tmp_path / "made").glob("a-hello"))

    golden.share_content(filled.root, made)

    for blob in (made / "blobs" / "sha256").iterdir():
        assert blob.samefile(filled.root / CONTENT / blob.name)


def test_nothing_of_a_filling_stays_on_the_host(filled, tmp_path):
    mounts = subprocess.run(["findmnt", "--list"], capture_output=True, text=True, check=True)

    assert str(tmp_path) not in mounts.stdout
    assert sorted(path.name for path in filled.root.parent.iterdir()) == ["root"]


def test_a_full_disk_is_said_to_be_one(filled, tmp_path):
    """Copy the store to a disk that is too small for it."""
    small = tmp_path / "small"
    small.mkdir()
    code = (
        "import sys; from pathlib import Path; from twin.images import golden\n"
        "golden.copy(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    script = f'mount -t tmpfs -o size=64k everstep {small} && python3 -c "$0" "$1" {small}/root'
    script = script.replace("python3", sys.executable)

    run = subprocess.run(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", script, code, filled.root],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 1
    assert "could not be copied" in run.stderr
    assert "No space left on device" in run.stderr


def test_an_image_is_built_from_its_dockerfile_into_an_archive(tmp_path, monkeypatch):
    asked = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GOCACHE", asked.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    archive = images.build("pause", Silent())

    assert [found.reference for found in layout.read(archive)] == [
        recipes.RECIPES["pause"].reference
    ]
    assert images.build("pause", Silent()) == archive
    assert not list(store.images_folder().glob(".staging-*"))
