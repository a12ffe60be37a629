"""Data for what shall not take long: made-up images, few rows of a data set, a zip of files."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace

import torch

from intarsia.data import Data, Split, subsample


def striped_images(name: str) -> Data:
    """Four easy classes of 8 x 8 images."""
    generator = torch.Generator().manual_seed(1)

    def split(samples: int) -> Split:
        y = torch.arange(samples) % 4
        x = torch.rand(samples, 1, 8, 8, generator=generator) * 0.4
        for label in range(4):
            x[y == label, :, 2 * label : 2 * label + 2] += 0.6
        return Split(x, y)

    return Data.build(name, ("a", "b", "c", "d"), split(200), split(80), split(80), "none")


def few_rows(data: Data, rows: int, held_out: int) -> Data:
    """So many training samples, and so many to validate and as many to test."""
    return replace(
        data,
        train=subsample(data.train, rows),
        validation=subsample(data.validation, held_out),
        test=subsample(data.test, held_out),
    )


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip of files by name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()
