"""Negatives without a class: what sources make, and that pools keep what is hidden hidden."""

import numpy as np
import pytest
import torch

from intarsia.data.negatives import NEGATIVES, make_pools, pools_of, read_negatives
from intarsia.errors import RecipeError


def draw(text: str, samples: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return NEGATIVES.call(NEGATIVES.spec(text), samples=samples, generator=generator)


def table(rows: int = 200, columns: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, columns, generator=generator) * torch.arange(1.0, columns + 1)


@pytest.mark.parametrize("name", ["noise", "mixed", "scaled"])
@pytest.mark.parametrize("amount", [0.0, 0.25, 2.0])
def test_sources_make_the_amount_that_is_asked_for(name: str, amount: float) -> None:
    made = draw(f"{name}({amount})", table())
    assert made.shape == (round(amount * 200), 5)
    assert made.dtype == torch.float32
    assert bool(torch.isfinite(made).all())


def test_mixed_rows_have_real_values_in_every_column_and_are_no_samples() -> None:
    x = table()
    made = draw("mixed(1.0)", x)
    for column in range(x.shape[1]):
        assert bool(torch.isin(made[:, column], x[:, column]).all())
    rows = {tuple(row) for row in x.tolist()}
    assert sum(tuple(row) in rows for row in made.tolist()) < 5


def test_uniform_noise_lies_in_the_range_of_each_feature_and_of_all_pixels() -> None:
    x = table(500)
    x[:, 2] = 7.0  # never changes
    made = draw("noise(2.0)", x)[::2]  # the uniform half
    low, high = x.amin(0), x.amax(0)
    for column in (0, 1, 3, 4):
        assert bool(
            (made[:, column] >= low[column]).all() and (made[:, column] <= high[column]).all()
        )
    assert float(made[:, 2].std()) > 0.1  # the usual range around its one value
    images = torch.zeros(50, 1, 4, 4)
    images[:, :, 1:3, 1:3] = 1.0
    corner = draw("noise(1.0)", images)[:, 0, 0, 0]
    assert corner.unique().numel() > 10  # a pixel that is always 0 has the range of the image


def test_scaled_samples_lie_further_out() -> None:
    x = table()
    ratio = draw("scaled(1.0, least=3)", x).norm(dim=1)
    assert float(ratio.min()) >= 3 * float(x.norm(dim=1).min()) - 1e-4
    with pytest.raises(RecipeError, match="above 1"):
        draw("scaled(1.0, least=0.5)", x)


def test_whole_numbers_stay_whole_numbers_in_their_range() -> None:
    tokens = torch.randint(3, 20, (100, 6), generator=torch.Generator().manual_seed(0))
    for text in ("mixed(1.0)", "noise(1.0)"):
        made = draw(text, tokens)
        assert made.dtype == torch.int64
    assert bool((draw("mixed(1.0)", tokens) >= 3).all())
    with pytest.raises(RecipeError, match="whole numbers"):
        draw("scaled(1.0)", tokens)


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, []), ("none", []), ("noise", ["noise"]), ("noise(0.2) + mixed", ["noise", "mixed"]),
     (["mixed", {"name": "noise", "amount": 1.0}], ["mixed", "noise"])],
)  # fmt: skip
def test_sources_are_read_as_people_write_them(text: object, names: list[str]) -> None:
    assert [spec.name for spec in read_negatives(text)] == names


def test_an_unknown_source_or_amount_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match=r"'nois'.*noise"):
        read_negatives("nois")
    with pytest.raises(RecipeError, match="amount of mixed is -1"):
        draw("mixed(-1)", table())


def test_a_pool_is_made_without_the_samples_it_is_to_hide() -> None:
    x, y = table(90), torch.arange(90) % 3
    sources = read_negatives("mixed(0.5) + noise(0.5)")
    pools = pools_of([(), (2,), (), (2,)])
    made, labels = make_pools(sources, x, y, pools, classes=3)
    assert pools == ((), (2,))
    assert labels.tolist() == [3] * 90 + [4] * 90
    other = x.clone()
    other[y == 2] = 1000.0
    again, _ = make_pools(sources, other, y, pools, classes=3)
    np.testing.assert_array_equal(again[90:], made[90:])
    assert not torch.equal(again[:90], made[:90])
    alone, _ = make_pools(sources, x, y, ((2,),), classes=3)
    np.testing.assert_array_equal(alone, made[90:])


def test_a_source_that_makes_other_rows_than_asked_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = table(30), torch.arange(30) % 3
    makes = iter([x[:5], x[:4]])
    monkeypatch.setitem(NEGATIVES, "uneven", lambda samples, generator: next(makes))
    with pytest.raises(RecipeError, match="equally many"):
        make_pools(read_negatives("uneven"), x, y, ((), (2,)), classes=3)
    monkeypatch.setitem(NEGATIVES, "narrow", lambda samples, generator: samples[:, :2])
    with pytest.raises(RecipeError, match="of their shape"):
        make_pools(read_negatives("narrow"), x, y, ((),), classes=3)
