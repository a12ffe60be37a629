"""The real data sets, where INTARSIA_DATA or a folder shared/data next to the project has them."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.data import DATASETS, Data, load_data

SHARED = Path(__file__).parents[4] / "shared" / "data"
FOLDER = os.environ.get("INTARSIA_DATA") or (str(SHARED) if SHARED.is_dir() else None)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch):
    def load(name: str, **options: object) -> Data:
        if FOLDER is None or not (Path(FOLDER) / f"{name}.npz").is_file():
            pytest.skip(f"data set {name} is not here: set INTARSIA_DATA")
        monkeypatch.setenv("INTARSIA_DATA", FOLDER)
        return load_data(name, download=False, **options)

    return load


@pytest.mark.parametrize(
    ("name", "sizes", "scale"),
    [
        ("mnist", (48000, 12000, 10000), "unit"),
        ("fashion_mnist", (48000, 12000, 10000), "unit"),
        ("har", (5882, 1470, 2947), "none"),
        ("yeast", (844, 195, 260), "standard"),
        ("cifar10", (40000, 10000, 10000), "unit"),
        ("cifar100", (40000, 10000, 10000), "unit"),
    ],
)
def test_sizes_and_stratification(real, name: str, sizes: tuple[int, ...], scale: str) -> None:
    data = real(name)
    parts = (data.train, data.validation, data.test)
    assert tuple(map(len, parts)) == sizes
    assert data.shape == DATASETS[name].shape
    assert data.scaling.kind == scale
    assert data.train.x.dtype == (torch.float32 if len(data.shape) == 1 else torch.uint8)
    counts = [torch.bincount(p.y, minlength=data.classes) for p in parts[:2]]
    exact = (counts[0] + counts[1]) * sizes[1] / (sizes[0] + sizes[1])
    assert (counts[1] - exact).abs().max() < 1


def test_har_is_split_by_subject(real) -> None:
    data = real("har", groups="subject", scale="standard")
    with np.load(Path(str(FOLDER)) / "har.npz") as file:
        subjects = {
            x.tobytes(): s for x, s in zip(file["x_train"], file["subject_train"], strict=True)
        }
    train, validation = (
        {int(subjects[x.tobytes()]) for x in split.x.numpy()}
        for split in (data.train, data.validation)
    )
    assert not train & validation
    assert len(train) + len(validation) == 21
    assert len(data.validation) == pytest.approx(0.2 * 7352, rel=0.05)


def test_yeast_fractions_are_the_papers(real) -> None:
    data = real("yeast")
    total = 1299
    fractions = [len(part) / total for part in (data.train, data.validation, data.test)]
    np.testing.assert_allclose(fractions, [0.65, 0.15, 0.20], atol=0.001)
    scaled = data.scaling(data.train.x)
    np.testing.assert_allclose(scaled.mean(dim=0), 0, atol=1e-4)
    # A column that hardly varies may be constant in the training split.
    varies = data.train.x.std(dim=0) > 0
    np.testing.assert_allclose(scaled[:, varies].std(dim=0, correction=0), 1, atol=1e-4)


def test_yeast_values_are_those_of_the_published_file(real) -> None:
    """Written out as the publisher does, the stored table has the digest that fetching expects."""
    real("yeast")
    with np.load(Path(str(FOLDER)) / "yeast.npz") as file:
        if "seq_name" not in file:
            pytest.skip("yeast.npz has no protein names")
        rows = zip(file["seq_name"], file["x"], file["classes"][file["y"]], strict=True)
        lines = [f"{n:<10}  {'  '.join(f'{v:.2f}' for v in x)}  {c}\n" for n, x, c in rows]
    digest = "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()
    assert digest == DATASETS["yeast"].files[0].copies[0][1]


def test_linear_classifier_agrees_that_splits_and_labels_fit(real) -> None:
    from sklearn.linear_model import LogisticRegression

    data = real("har")
    model = LogisticRegression(max_iter=300, C=1.0, tol=1e-2)
    model.fit(data.scaling(data.train.x)[::4], data.train.y[::4])
    assert model.score(data.scaling(data.test.x), data.test.y) > 0.9
