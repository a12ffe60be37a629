"""load_data(features=...): features in the splits, a digest of raw rows, options that hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intarsia.data import load_data, options_for
from intarsia.encoders import ENCODERS, Encoder
from intarsia.errors import DataError, RecipeError
from intarsia.limits import limited
from tiny_encoder import FEATURES, SHAPE, TinyEncoder, pictures


@pytest.fixture(autouse=True)
def tiny() -> None:
    ENCODERS.register("tiny", resizes=False)(lambda seed=0: TinyEncoder(seed))
    ENCODERS.register("bright")(lambda white=255.0: Bright(white))


class Bright(torch.nn.Module):
    """The mean of each colour, from 0 to 1."""

    def __init__(self, white: float) -> None:
        super().__init__()
        self.white = white

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3)) / self.white


def test_every_split_holds_the_features_of_its_raw_rows() -> None:
    x, y = pictures()
    raw, data = load_data(x, y), load_data(x, y, features=TinyEncoder())
    network = TinyEncoder().eval()
    for name in ("train", "validation", "test"):
        mine, theirs = getattr(data, name), getattr(raw, name)
        assert torch.equal(mine.y, theirs.y)
        assert mine.x.dtype == torch.float32
        torch.testing.assert_close(mine.x, network(theirs.x.float()).detach())
    assert data.shape == (FEATURES,)
    assert data.scaling.kind == "capped"
    assert data.encoder is not None
    assert data.encoder.shape == SHAPE
    assert raw.encoder is None


def test_a_test_part_of_its_own_is_encoded_too() -> None:
    x, y = pictures()
    source = {"x_train": x[:40], "y_train": y[:40], "x_test": x[40:], "y_test": y[40:]}
    data = load_data(source, features="tiny", scale="standard")
    expected = TinyEncoder().eval()(torch.tensor(x[40:]).float())
    torch.testing.assert_close(data.test.x, expected.detach())
    assert data.scaling.kind == "standard"


def test_the_digest_is_of_raw_rows_and_encoder_not_of_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures()
    data = load_data(x, y, features="tiny")
    assert data.digest == load_data(x, y, features="tiny").digest
    assert data.digest != load_data(x, y).digest
    assert data.digest != load_data(x, y, features="tiny(seed=1)").digest
    assert data.digest != load_data(x, y, features="tiny", scale="none").digest
    changed = x.copy()
    changed[0, 0, 0, 0] ^= 1
    assert data.digest != load_data(changed, y, features="tiny").digest

    class Rounded(TinyEncoder):
        """As another machine may: the last bits differ."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * (1 + 1e-6)

    ENCODERS.register("tiny", resizes=False)(lambda seed=0: Rounded(seed))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "elsewhere"))
    elsewhere = load_data(x, y, features="tiny")
    assert not torch.equal(elsewhere.train.x, data.train.x)
    assert elsewhere.digest == data.digest


def test_options_carry_the_encoder_by_name() -> None:
    x, y = pictures()
    data = load_data(x, y, features="tiny(seed=0)", seed=3)
    assert data.options == {"seed": 3, "features": "tiny"}
    assert load_data(x, y, **data.options).digest == data.digest
    own = load_data(x, y, features=TinyEncoder())
    assert own.options == {"features": "custom TinyEncoder"}
    with pytest.raises(RecipeError, match="a network or function of your own"):
        load_data(x, y, **own.options)
    assert load_data(x, y, features=own.encoder).digest == own.digest


def test_another_path_of_the_kind_is_read_with_the_same_features() -> None:
    learned = {"recipe": {"data": "a.npz", "data_options": {"features": "tiny", "seed": 1}}}
    assert options_for("b.npz", learned) == {"features": "tiny"}


def test_a_network_of_ones_own_is_not_looked_for_by_name() -> None:
    options = {"features": "custom TinyEncoder", "seed": 1}
    learned = {"recipe": {"data": "a.npz", "data_options": options}}
    assert options_for("a.npz", learned) == {"seed": 1}


def test_duplicates_and_classes_are_found_in_the_raw_rows() -> None:
    x, y = pictures()
    x[7] = x[1]
    y[7] = y[1]
    data = load_data(x, y, features="tiny", duplicates="drop", classes=[2, 1])
    assert data.catalogue == ("2", "1")
    assert len(data.train) + len(data.validation) + len(data.test) == 39


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"features": "bright", "x": np.zeros((60, *SHAPE), np.float32)}, "which value is white"),
        ({"features": "bright", "x": np.zeros((60, 12), np.float32)}, "reads pictures"),
        ({"features": TinyEncoder}, r"the class TinyEncoder: .* features=TinyEncoder\(\)"),
        ({"features": "bright(white=1)", "x": np.ones((60, 12), np.float32)}, "reads pictures"),
        ({"features": "tiny", "missing": "mean"}, "missing= has no meaning"),
        ({"features": "tinyy"}, "did you mean 'tiny'"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    x, y = pictures()
    with pytest.raises((DataError, RecipeError), match=message):
        load_data(given.pop("x", x), y, **given)


def test_floats_with_a_known_white_are_read() -> None:
    x, y = pictures()
    eight = load_data(x, y, features="bright")
    floats = load_data(x / 255, y, features="bright(white=1)")
    torch.testing.assert_close(eight.train.x, floats.train.x)


def test_features_are_counted_before_they_are_computed() -> None:
    x, y = pictures()

    def never(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), 2_000) if len(x) == 2 else torch.zeros(1 / 0)  # type: ignore

    with limited(numbers=1_000), pytest.raises(DataError, match="120000 numbers"):
        load_data(x, y, features=never)


def test_an_encoder_is_taken_for_what_it_is() -> None:
    x, y = pictures()
    encoder = Encoder.of("tiny", SHAPE)
    assert load_data(x, y, features=encoder).encoder is encoder
    with pytest.raises(DataError, match="takes N x 3 x 6 x 5"):
        load_data(x[:, :, :4], y, features=encoder)
