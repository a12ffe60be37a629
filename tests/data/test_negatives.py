"""Negatives without a class: what sources make, and that pools keep what is hidden hidden."""

import numpy as np
import pytest
import torch

from intarsia.data.negatives import NEGATIVES, Pool, make_pools, pools_of, read_negatives
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
    pools = pools_of((hidden, ()) for hidden in [(), (2,), (), (2,)])
    made, labels = make_pools(sources, x, y, pools, classes=3)
    assert pools == (Pool(()), Pool((2,)))
    assert labels.tolist() == [3] * 90 + [4] * 90
    other = x.clone()
    other[y == 2] = 1000.0
    again, _ = make_pools(sources, other, y, pools, classes=3)
    np.testing.assert_array_equal(again[90:], made[90:])
    assert not torch.equal(again[:90], made[:90])
    alone, _ = make_pools(sources, x, y, [Pool((2,))], classes=3)
    np.testing.assert_array_equal(alone, made[90:])


def test_a_source_that_makes_other_rows_than_asked_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = table(30), torch.arange(30) % 3
    pools = [Pool(()), Pool((2,))]
    makes = iter([x[:5], x[:4]])
    monkeypatch.setitem(NEGATIVES, "uneven", lambda samples, generator: next(makes))
    with pytest.raises(RecipeError, match="equally many"):
        make_pools(read_negatives("uneven"), x, y, pools, classes=3)
    monkeypatch.setitem(NEGATIVES, "narrow", lambda samples, generator: samples[:, :2])
    with pytest.raises(RecipeError, match="of their shape"):
        make_pools(read_negatives("narrow"), x, y, pools[:1], classes=3)


def images(rows: int = 30, channels: int = 1, size: tuple[int, int] = (8, 8)) -> torch.Tensor:
    return torch.rand(rows, channels, *size, generator=torch.Generator().manual_seed(2))


def draw_own(text: str, own: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return NEGATIVES.call(NEGATIVES.spec(text), own=own, generator=generator)


def test_turned_images_are_each_one_of_the_ways_of_an_own_one() -> None:
    own = images(4, 3)
    made = draw_own("turned(60)", own)
    assert made.shape == (240, 3, 8, 8)
    ways = [own.flip(-1), own.flip(-2), *(torch.rot90(own, k, (-2, -1)) for k in (1, 2, 3))]
    known = {tuple(row) for row in torch.cat(ways).flatten(1).tolist()}
    assert {tuple(row) for row in made.flatten(1).tolist()} == known
    oblong = draw_own("turned(2)", images(4, 1, (4, 6)))
    assert oblong.shape == (8, 1, 4, 6)


@pytest.mark.parametrize("name", ["bent", "warped"])
def test_moved_pixels_stay_in_the_range_of_the_images(name: str) -> None:
    own = images() * 3 - 5
    made = draw_own(f"{name}(2.5)", own)
    assert made.shape == (75, 1, 8, 8)
    assert float(own.min()) - 1e-4 <= float(made.min())
    assert float(made.max()) <= float(own.max()) + 1e-4
    assert torch.equal(made, draw_own(f"{name}(2.5)", own))
    assert not torch.equal(made, draw_own(f"{name}(2.5)", own, seed=1))


def test_a_bend_of_hardly_any_strength_leaves_images_as_they_are() -> None:
    own = images(5)
    made = draw_own("bent(4, strength=1e-6)", own)
    nearest = (made[:, None] - own).abs().flatten(2).amax(2).amin(1)
    assert float(nearest.max()) < 1e-4


@pytest.mark.parametrize("name", ["turned", "bent", "warped"])
def test_tables_have_no_pixels_to_move(name: str) -> None:
    with pytest.raises(RecipeError, match=f"{name} moves the pixels.*gaussian"):
        draw_own(name, table())


def test_public_rows_are_drawn_none_twice_before_all_were() -> None:
    public = torch.arange(30.0).reshape(10, 3)
    generator = torch.Generator().manual_seed(0)
    spec = NEGATIVES.spec("public(0.5)")
    made = NEGATIVES.call(spec, samples=table(40, 3), generator=generator, public=public)
    counts = {tuple(row): made.tolist().count(row) for row in made.tolist()}
    assert sorted(counts) == sorted(map(tuple, public.tolist()))
    assert set(counts.values()) == {2}
    with pytest.raises(RecipeError, match="load them with public="):
        draw("public(0.5)", table())


def test_gaussian_has_the_mean_and_spread_of_the_public_set() -> None:
    public = table(4000, 3) + torch.tensor([5.0, 0.0, -5.0])
    spec, generator = NEGATIVES.spec("gaussian(20, spread=2)"), torch.Generator().manual_seed(0)
    made = NEGATIVES.call(spec, samples=table(200, 3), generator=generator, public=public)
    torch.testing.assert_close(made.mean(0), public.mean(0), rtol=0.1, atol=0.2)
    torch.testing.assert_close(made.std(0), 2 * public.std(0), rtol=0.05, atol=0)
    alone = draw("gaussian(20)", table(200, 3) + 100)  # of the samples it knows their number alone
    torch.testing.assert_close(alone.mean(0), torch.zeros(3), rtol=0, atol=0.05)
    torch.testing.assert_close(alone.std(0), torch.ones(3), rtol=0.05, atol=0)
    with pytest.raises(RecipeError, match="spread is 0"):
        draw("gaussian(1, spread=0)", table())


def test_shuffled_rows_have_the_values_of_an_own_row_elsewhere() -> None:
    own = table(20, 6)
    made = draw_own("shuffled(3)", own)
    assert made.shape == (60, 6)
    values = {tuple(sorted(row)) for row in own.tolist()}
    assert {tuple(sorted(row)) for row in made.tolist()} <= values
    assert sum(row in own.tolist() for row in made.tolist()) < 3
