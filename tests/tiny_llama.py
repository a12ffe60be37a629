"""A random llama2.c model with a tokenizer, written byte by byte, for tests."""

import struct
from pathlib import Path

import numpy as np

from intarsia.lens import LlamaShape

SHAPE = LlamaShape(16, 24, 3, 4, 2, 270, 64)
WORDS = ["ab", " a", "abc", "the", " the", "on", "ce", "once", " b", "th", "e "]


def write_llama(folder: Path, shape: LlamaShape = SHAPE, seed: int = 0) -> Path:
    """model.bin and tok.bin in a folder, which is given back."""
    generator = np.random.default_rng(seed)
    vocabulary = shape.vocabulary if shape.tied else -shape.vocabulary
    sizes = (shape.width, shape.hidden, shape.layers, shape.heads, shape.kv_heads)
    body = b"".join(
        (generator.normal(size=own) * 0.4).astype("<f4").tobytes()
        for own in shape.tensors().values()
    )
    header = struct.pack("<7i", *sizes, vocabulary, shape.context)
    (folder / "model.bin").write_bytes(header + body)
    pieces = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(f"<0x{b:02X}>".encode() for b in range(256))]
    pieces += [word.encode() for word in WORDS]
    scores = [0.0] * 259 + [-float(place) for place in range(len(WORDS))]
    rows = [struct.pack("<fi", s, len(p)) + p for s, p in zip(scores, pieces, strict=True)]
    (folder / "tok.bin").write_bytes(struct.pack("<i", 8) + b"".join(rows))
    return folder
