"""Image stores filled by a real containerd, with images of a few bytes."""

import subprocess
import sys
from pathlib import Path

import pytest
from cloudtwin import images
from cloudtwin.errors import TwinError
from cloudtwin.images import ImageStore, golden, oci_layout, store
from cloudtwin.images.golden import CONTENT, ImportSource
from cloudtwin.images.recipes import all_recipes
from cloudtwin.progress import Silent

from twin.tests.images.tars import write_tar

pytestmark = pytest.mark.twin
SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
DATABASES = [
    "io.containerd.metadata.v1.bolt/meta.db",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db",
]

PAUSE = all_recipes(())["pause"]


def write_image(folder: Path, name: str, content: bytes) -> ImportSource:
    """Write the layout of an image with one file; return it as a source to import."""
    folder.mkdir(exist_ok=True)
    layer = write_tar(folder / f"{name}.layer", greeting=content)
    target = folder / f"{name}-{content.decode()}"
    oci_layout.single_layer(target, layer, f"localhost/test/{name}:local", {})
    return ImportSource(target)


def greetings(root: Path) -> set[bytes]:
    return {path.read_bytes() for path in (root / SNAPSHOTS).glob("*/fs/greeting")}


@pytest.fixture
def filled_store(tmp_path: Path) -> ImageStore:
    root = tmp_path / "store" / "root"
    sources = [
        write_image(tmp_path / "made", "a", b"hello"),
        write_image(tmp_path / "made", "b", b"salut"),
    ]
    references = golden.fill(root, sources)
    return ImageStore(root, "key", references)


def test_a_root_contains_every_image_unpacked(filled_store: ImageStore) -> None:
    assert filled_store.references == ("localhost/test/a:local", "localhost/test/b:local")
    assert greetings(filled_store.root) == {b"hello", b"salut"}


def test_nodes_share_immutable_files_and_have_their_own_databases(
    filled_store: ImageStore, tmp_path: Path
) -> None:
    images.clone(filled_store, tmp_path / "node" / "containerd")

    for path in filled_store.root.rglob("*"):
        copy = tmp_path / "node" / "containerd" / path.relative_to(filled_store.root)
        assert copy.lstat().st_mode == path.lstat().st_mode
        if path.is_file():
            is_database = str(path.relative_to(filled_store.root)) in DATABASES
            assert copy.samefile(path) is not is_database, path
    assert all((filled_store.root / name).exists() for name in DATABASES)


def test_a_containerd_on_a_clone_reads_every_image_and_does_not_change_the_store(
    filled_store: ImageStore, tmp_path: Path
) -> None:
    before = {
        path: path.lstat().st_mtime_ns for path in filled_store.root.rglob("*") if path.is_file()
    }
    node = tmp_path / "node" / "containerd"
    images.clone(filled_store, node)

    assert golden.fill(node, [write_image(tmp_path / "made", "c", b"hola")]) == (
        "localhost/test/c:local",
    )

    assert greetings(node) == {b"hola"}, "unused images must be removed"
    assert greetings(filled_store.root) == {b"hello", b"salut"}
    assert before == {path: path.lstat().st_mtime_ns for path in before}


def test_a_store_is_updated_from_a_copy_of_the_previous_one(
    filled_store: ImageStore, tmp_path: Path
) -> None:
    root = tmp_path / "next" / "root"
    golden.copy(filled_store.root, root)
    unchanged = ImportSource(next((tmp_path / "made").glob("b-salut")))

    golden.fill(root, [write_image(tmp_path / "made", "a", b"servus"), unchanged])

    assert greetings(root) == {b"servus", b"salut"}
    assert len(list((root / CONTENT).iterdir())) == 6  # manifest, config and layer of each


def test_a_users_archive_is_loaded_under_its_own_name(tmp_path: Path) -> None:
    layout = write_image(tmp_path / "made", "theirs", b"hello").path
    archive = tmp_path / "theirs.tar"
    with archive.open("wb") as file:
        oci_layout.write_archive(layout, "registry.test/team/theirs:1.0", file, existing_blobs=())

    references = golden.fill(tmp_path / "store" / "root", [ImportSource(archive)])

    assert references == ("registry.test/team/theirs:1.0",)


def test_an_image_with_a_broken_blob_is_named(tmp_path: Path) -> None:
    source = write_image(tmp_path / "made", "a", b"hello")
    for blob in (source.path / "blobs" / "sha256").iterdir():
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")

    with pytest.raises(TwinError, match=r"containerd refuses .*a-hello"):
        golden.fill(tmp_path / "store" / "root", [source])


def test_a_layout_and_a_store_share_equal_blobs(filled_store: ImageStore, tmp_path: Path) -> None:
    layout = next((tmp_path / "made").glob("a-hello"))

    golden.share_content(filled_store.root, layout)

    for blob in (layout / "blobs" / "sha256").iterdir():
        assert blob.samefile(filled_store.root / CONTENT / blob.name)


def test_filling_leaves_no_mount_and_no_file_on_the_host(
    filled_store: ImageStore, tmp_path: Path
) -> None:
    mounts = subprocess.run(["findmnt", "--list"], capture_output=True, text=True, check=True)

    assert str(tmp_path) not in mounts.stdout
    assert sorted(path.name for path in filled_store.root.parent.iterdir()) == ["root"]


def test_an_error_on_a_full_disk_names_the_cause(filled_store: ImageStore, tmp_path: Path) -> None:
    small_disk = tmp_path / "small"
    small_disk.mkdir()
    code = (
        "import sys; from pathlib import Path; from cloudtwin.images import golden\n"
        "golden.copy(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    mount = f"mount -t tmpfs -o size=64k everstep {small_disk}"
    script = f'{mount} && {sys.executable} -c "$0" "$1" {small_disk}/root'

    result = subprocess.run(
        [
            "unshare",
            "--mount",
            "--propagation=private",
            "sh",
            "-c",
            script,
            code,
            filled_store.root,
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "could not be copied" in result.stderr
    assert "No space left on device" in result.stderr


def test_an_image_is_built_from_its_dockerfile_into_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GOCACHE", result.stdout.strip())
    monkeypatch.setenv("CLOUDTWIN_CACHE", str(tmp_path / "cache"))

    archive = images.build(PAUSE, Silent())

    assert [built.reference for built in oci_layout.read(archive)] == [PAUSE.reference]
    assert images.build(PAUSE, Silent()) == archive
    assert not list(store.images_folder().glob(".staging-*"))
