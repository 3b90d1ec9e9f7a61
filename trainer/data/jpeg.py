"""JPEG decoding with OpenCV: sizes from headers, and pixels at a reduced scale.

A JPEG stores cosine coefficients, so decoding at half the size computes a quarter of the pixels. OpenCV
decodes twice as fast as PIL, and crops, scales and mirrors without copying rows into Python objects.
OpenCV applies the EXIF orientation unless a flag forbids it; PIL, torchvision and this module do not.
"""

import functools
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import numpy.typing as npt

from everstep.errors import EverstepError

Encoded = npt.NDArray[np.uint8]  # a file's bytes, shape (bytes,)
Pixels = npt.NDArray[np.uint8]  # shape (height, width, 3), blue first: OpenCV's order

REDUCTIONS = (8, 4, 2)  # factors by which the decoder can scale down

_START, _END = b"\xff\xd8", b"\xff\xd9"
_MARKER, _START_OF_SCAN = 0xFF, 0xDA
# Markers of segments with the frame size: ITU T.81, table B.1.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_FRAME_BYTES = 5  # precision, height, width


@functools.cache
def opencv() -> ModuleType:
    """Return the module cv2, limited to one thread: reader processes run in parallel.

    Raises:
        EverstepError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError as error:
        raise EverstepError(
            f"this data set needs OpenCV to read photographs, and Python has no module cv2: {error}",
            "Install opencv-python-headless, as in requirements/trainer.txt; the trainer's image has it.",
        ) from error
    cv2.setNumThreads(0)
    return cv2


def is_jpeg(data: Encoded) -> bool:
    """Return True if the bytes begin with a JPEG signature."""
    return data[:2].tobytes() == _START


def frame_size(data: Encoded) -> tuple[int, int]:
    """Return width and height in pixels from the header.

    Raises:
        ValueError: the bytes are not a complete JPEG; the message contains the reason.
    """
    if not is_jpeg(data):
        raise ValueError("it is not a JPEG")
    size, scans = (0, 0), b""
    for kind, segment in _segments(data.data):
        if kind in _FRAMES and len(segment) >= _FRAME_BYTES:
            size = int.from_bytes(segment[3:5]), int.from_bytes(segment[1:3])
        elif kind == _START_OF_SCAN:
            scans = bytes(segment)
    if not all(size):
        raise ValueError("it has no frame header")
    # The end may be anywhere: phones append a video, or another picture. Pixels contain no marker (ITU T.81, B.1.1.5).
    if scans.rfind(_END) < 0:
        raise ValueError("it is truncated: its end is missing")
    return size


def _segments(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield kind and content of each segment before the pixels, then the first scan and the rest of the file."""
    offset = 2
    while offset + 4 <= len(data):
        if data[offset] != _MARKER:
            raise ValueError("its header is damaged")
        kind = data[offset + 1]
        if kind == _MARKER:  # any number of fill bytes may precede a marker
            offset += 1
            continue
        if kind == _START_OF_SCAN:
            yield kind, data[offset:]
            return
        length = int.from_bytes(data[offset + 2 : offset + 4])
        yield kind, data[offset + 4 : offset + 2 + length]
        offset += 2 + length


def reduction_for(width: int, height: int, size: int) -> int:
    """Return the largest decoding divisor with which these pixels still fill `size`."""
    return next((factor for factor in REDUCTIONS if min(width, height) >= factor * size), 1)


def decode(data: Encoded, reduction: int = 1) -> Pixels:
    """Return the pixels, both sides divided by `reduction` and rounded up.

    Raises:
        ValueError: OpenCV cannot decode the bytes.
    """
    cv2 = opencv()
    flag = cv2.IMREAD_COLOR if reduction == 1 else getattr(cv2, f"IMREAD_REDUCED_COLOR_{reduction}")
    try:
        pixels: Pixels | None = cv2.imdecode(data, flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise ValueError(f"OpenCV cannot decode it: {error}") from error
    if pixels is None:
        raise ValueError("OpenCV cannot decode it")
    return pixels
