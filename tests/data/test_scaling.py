import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from intarsia.data import Scaling
from intarsia.errors import DataError


@pytest.fixture
def table() -> torch.Tensor:
    x = np.random.default_rng(0).normal(3, [1, 10, 0.01, 100], (500, 4))
    return torch.tensor(x, dtype=torch.float32)


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [
        ("unit", MinMaxScaler()),
        ("signed", MinMaxScaler((-1, 1))),
        ("standard", StandardScaler()),
    ],
)
def test_tables_scale_as_in_scikit_learn(kind: str, oracle: object, table: torch.Tensor) -> None:
    scaling = Scaling.fit(kind, table)
    expected = oracle.fit(table.double().numpy()).transform(table.double().numpy())
    assert scaling.shift.shape == scaling.scale.shape == (4,)
    assert scaling(table).dtype == torch.float32
    np.testing.assert_allclose(scaling(table).numpy(), expected, atol=2e-4)


def test_uint8_images_have_a_known_range() -> None:
    x = torch.arange(40, 100, dtype=torch.uint8).reshape(15, 1, 2, 2)
    unit, signed = Scaling.fit("unit", x), Scaling.fit("signed", x)
    assert unit.shift.shape == unit.scale.shape == ()
    np.testing.assert_allclose(unit(x).numpy(), x.numpy() / 255, rtol=1e-6)
    np.testing.assert_allclose(signed(x).numpy(), x.numpy() / 127.5 - 1, atol=1e-6)
    ends = torch.tensor([0, 255], dtype=torch.uint8)
    assert unit(ends).tolist() == [0.0, 1.0]
    assert signed(ends).tolist() == [-1.0, 1.0]


def test_images_share_one_mean_and_deviation_over_chunks() -> None:
    x = torch.randint(0, 256, (9000, 1, 2, 2), dtype=torch.uint8)
    scaling = Scaling.fit("standard", x)
    assert scaling.shift.shape == ()
    np.testing.assert_allclose(scaling.shift.item(), x.double().mean().item(), rtol=1e-6)
    np.testing.assert_allclose(1 / scaling.scale.item(), x.numpy().std(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["unit", "signed", "standard"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e7, -3.3])
def test_constant_feature_gets_scale_one(kind: str, value: float) -> None:
    x = torch.full((1001, 2), value)
    x[:, 1] = torch.arange(1001)
    scaling = Scaling.fit(kind, x)
    assert scaling.scale[0] == 1
    assert scaling(x)[:, 0].abs().max() == 0


def test_tiny_range_gives_finite_scale() -> None:
    x = torch.tensor([[0.0], [1e-44]])
    assert torch.isfinite(Scaling.fit("unit", x).scale).all()


def test_none_changes_the_type_only() -> None:
    x = torch.tensor([[1, 200]], dtype=torch.uint8)
    assert Scaling.fit("none", x)(x).tolist() == [[1.0, 200.0]]


@given(
    st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(0, 1)),
        min_size=1,
    ),
    st.booleans(),
)
def test_json_round_trip_is_exact(pairs: list[tuple[float, float]], single: bool) -> None:
    shift, scale = torch.tensor(pairs, dtype=torch.float32).T
    if single:
        shift, scale = shift[0], scale[0]
    before = Scaling("standard", shift, scale)
    after = Scaling.from_json(json.loads(json.dumps(before.to_json())))
    assert after.kind == "standard"
    for a, b in ((before.shift, after.shift), (before.scale, after.scale)):
        assert a.shape == b.shape
        assert a.contiguous().numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "unit", "shift": 0.0}, "missing: .'scale'."),
        ({"kind": "units", "shift": 0.0, "scale": 1.0}, "did you mean 'unit'"),
        ({"kind": "unit", "shift": [0.0], "scale": 1.0}, "one length"),
        ({"kind": "unit", "shift": "a", "scale": 1.0}, "must be numbers"),
        ({"kind": "unit", "shift": [[0.0], [0.0, 1.0]], "scale": 1.0}, "must be numbers"),
        ({"kind": "unit", "shift": 0.0, "scale": float("nan")}, "finite"),
        ({"kind": "unit", "shift": 1e300, "scale": 1.0}, "finite"),
    ],
)
def test_bad_json_is_refused(value: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Scaling.from_json(value)


def test_unknown_kind_and_empty_split_are_refused() -> None:
    with pytest.raises(DataError, match="did you mean 'standard'"):
        Scaling.fit("standart", torch.zeros(2, 2))
    with pytest.raises(DataError, match="empty"):
        Scaling.fit("unit", torch.zeros(0, 2))


def test_capped_is_standard_but_for_features_with_values_far_out() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator)
    x[:, 1] = 0.0
    x[7, 1] = 5.0  # almost always 0: twenty standard deviations
    x[:, 2] = 3.0  # never changes
    standard, capped = (Scaling.fit(kind, x) for kind in ("standard", "capped"))
    np.testing.assert_array_equal(capped.shift, standard.shift)
    assert float(capped.scale[0]) == float(standard.scale[0])
    assert float(standard(x)[7, 1]) > 19
    assert float(capped(x)[7, 1]) == pytest.approx(10, rel=1e-5)
    assert float(capped.scale[2]) == 1.0
    assert Scaling.from_json(capped.to_json()).kind == "capped"
