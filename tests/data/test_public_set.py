"""Public sets: inputs without labels from wherever they lie, in the data's shape."""

from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.data import load_data
from intarsia.errors import DataError

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(60, 5)), np.arange(60) % 3
PUBLIC = RANDOM.normal(loc=3.0, size=(40, 5)).astype(np.float32)


def test_an_array_an_npz_a_mapping_and_a_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x=X, y=Y, x_public=PUBLIC)
    np.savez(tmp_path / "alone.npz", rows=PUBLIC)
    sources = [
        load_data(X, Y, public=PUBLIC),
        load_data({"x": X, "y": Y, "more": PUBLIC}, public="more"),
        load_data(tmp_path / "both.npz", public="x_public"),
        load_data(X, Y, public=tmp_path / "alone.npz"),
        load_data(X, Y, public=str(tmp_path / "both.npz")),
    ]
    for data in sources:
        assert data.public is not None
        assert torch.equal(data.public, torch.tensor(PUBLIC))
        assert data.digest == sources[0].digest
    assert sources[1].options == {"public": "more"}
    digits = load_data("digits", public="digits")
    assert digits.public is not None
    assert digits.public.shape == (1797, 1, 8, 8)


def test_the_digest_knows_of_it_only_where_it_is_given() -> None:
    plain, given = load_data(X, Y), load_data(X, Y, public=PUBLIC)
    assert plain.public is None
    assert "public" not in plain.options
    assert plain.digest != given.digest
    assert load_data(X, Y, scale_on="train").digest == plain.digest
    other = load_data(X, Y, public=PUBLIC, scale_on="public")
    assert other.digest not in (plain.digest, given.digest)


def test_the_scaling_of_public_rows_alone() -> None:
    data = load_data(X, Y, public=PUBLIC, scale="standard", scale_on="public")
    np.testing.assert_allclose(data.scaling.shift, PUBLIC.mean(0), rtol=1e-5)
    np.testing.assert_allclose(1 / data.scaling.scale, PUBLIC.std(0), rtol=1e-5)
    assert data.options["scale_on"] == "public"
    with pytest.raises(DataError, match="no public set"):
        load_data(X, Y, scale_on="public")
    with pytest.raises(DataError, match="'train' or 'public'"):
        load_data(X, Y, scale_on="all")


def test_images_come_in_the_shape_of_the_data() -> None:
    images = RANDOM.integers(0, 256, (12, 6, 6), dtype=np.uint8)
    labels = np.arange(12) % 2
    flat = images.reshape(12, 36)
    data = load_data(images, labels, public=images)
    assert data.public is not None
    assert data.public.shape == (12, 1, 6, 6)
    with pytest.raises(DataError, match="one form"):
        load_data(images, labels, public=flat)  # rows of numbers, no pixels
    with pytest.raises(DataError, match="expected N x 1 x 6 x 6"):
        load_data(images, labels, public=images[:, :4, :4])


def test_what_is_no_public_set_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"public is 'x_publik'.*x_public"):
        load_data({"x": X, "y": Y, "x_public": PUBLIC}, public="x_publik")
    np.savez(tmp_path / "odd.npz", one=PUBLIC, two=PUBLIC)
    with pytest.raises(DataError, match="no array of inputs"):
        load_data(X, Y, public=tmp_path / "odd.npz")
    with pytest.raises(DataError, match="NaN"):
        load_data(X, Y, public=np.full((3, 5), np.nan))
