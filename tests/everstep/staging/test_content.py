"""Checksums of content, as the stores compute them."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.staging.content import BrokenContentError, Checksum, Digest, PartsMd5


def etag_of_parts(content: bytes, part_bytes: int) -> str:
    parts = [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)]
    digest_of_parts = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts))
    return f"{digest_of_parts.hexdigest()}-{len(parts)}"


@given(chunks=st.lists(st.binary(max_size=7)), part_bytes=st.integers(1, 9))
def test_the_etag_of_parts_does_not_depend_on_the_chunks(
    chunks: list[bytes], part_bytes: int
) -> None:
    etag = PartsMd5(part_bytes)
    for chunk in chunks:
        etag.update(chunk)

    assert etag.hexdigest() == etag_of_parts(b"".join(chunks), part_bytes)


@pytest.mark.parametrize("part_bytes", [0, 2])
def test_content_that_differs_from_the_checksum_of_its_store_is_refused(part_bytes: int) -> None:
    checksum = etag_of_parts(b"abc", 2) if part_bytes else hashlib.md5(b"abc").hexdigest()
    for content, expected in ((b"abc", True), (b"abd", False)):
        digest = Digest(Checksum(checksum, part_bytes))
        digest.update(content)
        if expected:
            assert digest.hexdigest() == hashlib.sha256(content).hexdigest()
        else:
            with pytest.raises(BrokenContentError, match=checksum):
                digest.hexdigest()
