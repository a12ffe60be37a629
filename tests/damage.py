"""Files damaged as a disk would do it."""

from pathlib import Path


def flip(path: Path, place: int | float, bit: int = 0) -> bytes:
    """Flip a bit of a byte, or of the byte at a fraction of the file; what it holds then."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1 << bit
    path.write_bytes(content)
    return bytes(content)
