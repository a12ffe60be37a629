"""A small picture as an address that holds it, to stand inside a page."""

import base64
import struct
import zlib

import numpy as np

GREY, RGB, PLACES = 0, 2, 3  # how PNG numbers the kinds of colour


def png(pixels: np.ndarray, palette: bytes = b"") -> str:
    """H x W x 1 or 3 bytes, grey or in colour; with a palette H x W x 1 are places in it."""
    height, width, channels = pixels.shape
    kind = PLACES if palette else (GREY if channels == 1 else RGB)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # no filter
    merged = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
        + (_chunk(b"PLTE", palette) if palette else b"")
        + _chunk(b"IDAT", zlib.compress(lines, 9))
        + _chunk(b"IEND", b"")
    )
    return f"data:image/png;base64,{base64.b64encode(merged).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check
