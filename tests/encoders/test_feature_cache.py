"""Features in the cache: computed once, in chunks; a stopped run goes on, damage is repaired."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from intarsia.encoders import Encoder, cached_features, feature_cache
from intarsia.errors import DataError, FileWarning
from tiny_encoder import SHAPE, TinyEncoder, pictures


class Counting:
    """The rows that an encoder was asked for, and a stop after so many of them."""

    def __init__(self, most: int = 10**9) -> None:
        self.rows, self.most, self.network = 0, most, TinyEncoder().eval()

    def __call__(self, x: Tensor) -> Tensor:
        if self.rows >= self.most:
            raise KeyboardInterrupt
        self.rows += len(x)
        return self.network(x)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_cache, "CHUNK", 8)


def counted(most: int = 10**9) -> tuple[Encoder, Counting]:
    function = Counting()
    encoder = Encoder.of(function, SHAPE)
    function.rows, function.most = 0, most
    return encoder, function


def test_features_are_computed_once_and_equal_those_of_the_network() -> None:
    x = pictures(20)[0]
    encoder, function = counted()
    features = cached_features(encoder, x)
    expected = TinyEncoder().eval()(torch.tensor(x).float())
    np.testing.assert_allclose(features, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert function.rows == 20
    again = cached_features(encoder, x)
    assert function.rows == 20
    assert np.array_equal(again, features)


def test_a_stopped_run_goes_on_where_it_was(cache: Path) -> None:
    x = pictures(30)[0]
    encoder, function = counted(most=16)
    with pytest.raises(KeyboardInterrupt):
        cached_features(encoder, x)
    assert len(list(cache.rglob("*.safetensors"))) == 2
    assert not list(cache.rglob("*.part"))
    encoder, function = counted()
    features = cached_features(encoder, x)
    assert function.rows == 14
    other, _ = counted()
    assert np.array_equal(features, cached_features(other, x))


def test_other_rows_and_other_encoders_have_other_files(cache: Path) -> None:
    x = pictures(8)[0]
    cached_features(Encoder.of(TinyEncoder(), SHAPE), x)
    cached_features(Encoder.of(TinyEncoder(1), SHAPE), x)
    changed = x.copy()
    changed[0, 0, 0, 0] ^= 1
    cached_features(Encoder.of(TinyEncoder(), SHAPE), changed)
    cached_features(Encoder.of(TinyEncoder(), SHAPE), x.astype(np.float32))
    assert len(list(cache.rglob("*.safetensors"))) == 4


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_chunk_is_computed_again(damage: str, cache: Path) -> None:
    x = pictures(8)[0]
    encoder, function = counted()
    features = cached_features(encoder, x)
    (path,) = cache.rglob("*.safetensors")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-60] ^= 1
    path.write_bytes(b"" if damage == "empty" else content[: -5 if damage == "cut" else None])
    with pytest.warns(FileWarning, match="computed again"):
        repaired = cached_features(encoder, x)
    assert function.rows == 16
    assert np.array_equal(repaired, features)
    cached_features(encoder, x)
    assert function.rows == 16


def test_a_cache_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="INTARSIA_CACHE"):
        cached_features(counted()[0], pictures(4)[0])


def test_a_bar_is_shown_where_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    cached_features(counted()[0], pictures(12)[0], progress=True)
    assert "12/12" in capsys.readouterr().err
    cached_features(counted()[0], pictures(12)[0])
    assert capsys.readouterr().err == ""
