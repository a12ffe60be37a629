"""The demo on features: what it draws, measures and leaves behind."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import intarsia as ia
from intarsia.demos.features_demo import JOINT, WAYS, features_demo
from intarsia.demos.symbols import OTHERS, SIDE, SYMBOLS, symbol_pictures


def coarse(x: Tensor) -> Tensor:
    """Pictures as 8 x 8 grey pixels, paper and ink alike whichever is darker."""
    grey = torch.nn.functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), 8).flatten(1)
    ink = (grey - grey.median(1, keepdim=True).values).abs()
    return ink / ink.amax(1, keepdim=True).clamp_min(1)


def test_symbols_are_a_hundred_and_differ_from_picture_to_picture() -> None:
    assert len(SYMBOLS) == len(set(SYMBOLS)) == 100
    assert len(OTHERS) == len(set(OTHERS))
    assert not set(OTHERS) & set(SYMBOLS)
    pictures, symbols = symbol_pictures(2)
    assert pictures.shape == (200, SIDE, SIDE, 3)
    assert pictures.dtype == np.uint8
    assert symbols.tolist() == [*SYMBOLS] * 2
    assert len({picture.tobytes() for picture in pictures}) == 200
    again, _ = symbol_pictures(2)
    assert np.array_equal(pictures, again)
    assert not np.array_equal(pictures, symbol_pictures(2, seed=1)[0])
    # Drawn: what lies in the middle has another colour than the corners of most pictures.
    middle = pictures[:, 12:36, 12:36].reshape(200, -1, 3).std(axis=1).mean(axis=1)
    corner = pictures[:, :6, :6].reshape(200, -1, 3).std(axis=1).mean(axis=1)
    assert np.mean(middle > 1.5 * corner) > 0.9


@pytest.mark.usefixtures("one_thread")
def test_it_goes_from_pictures_to_a_file_that_reads_pictures(tmp_path: Path) -> None:
    said: list[str] = []
    findings = features_demo(
        tmp_path, each=(6, 2, 1), encoder=coarse, epochs=3, progress=False, say=said.append
    )
    assert findings.classes == 100
    assert findings.test_samples == 200
    assert findings.features == 64
    assert list(findings.accuracy) == list(WAYS)
    assert all(0 <= accuracy <= 1 for accuracy in findings.accuracy.values())
    assert findings.accuracy[JOINT] > 0.05  # of a hundred
    assert findings.same_bits
    assert len({symbol for symbol, _ in findings.asked}) == len(findings.asked) == 8
    assert {name for pair in findings.asked for name in pair} <= set(SYMBOLS)
    json.dumps(findings.to_json(), allow_nan=False)
    whole = ia.Composition.load(tmp_path / "whole.safetensors", encoder=coarse)
    pictures, symbols = symbol_pictures(1, seed=5)
    answers = whole.predict(torch.from_numpy(pictures.transpose(0, 3, 1, 2).copy()))
    assert len(answers) == len(symbols)
    text = (tmp_path / "report.md").read_text()
    assert "bit for bit what they were" in text
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert said[-1] == "writing the report"
