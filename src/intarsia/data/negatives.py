"""Negatives without a class: samples made up or public, on which modules learn to be uncertain.

A module is uniform on all classes but its own; on what is of no class at all it was never asked,
and may be as sure as it likes. And where it may not see other classes (`visibility`), these are all
the negatives it has. A source makes such samples from those that the module may see:

    @NEGATIVES.register("mine")
    def mine(samples, generator, amount=0.5):
        return samples[...]  # round(amount * len(samples)) rows, scaled as the samples are

One that also takes `own` gets the rows of the module's rewarded classes, one that takes `public`
the unlabelled rows that the data were loaded with, scaled likewise, or None.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from intarsia.errors import RecipeError
from intarsia.files import stream
from intarsia.specs import Registry, Spec, is_number

NEGATIVES = Registry("negatives", given=("samples", "generator", "own", "public"))
"""Sources by name; a function of samples (N, *shape) and a generator that gives made-up rows."""

CHUNK = 2**22  # numbers drawn at a time


class Pool(NamedTuple):
    """Made-up rows of modules that see the same: what is hidden from them, and what is their own.

    `own` has the rewarded labels where it matters which these are, else none.
    """

    hidden: tuple[int, ...]
    own: tuple[int, ...] = ()


def read_negatives(given: Any) -> list[Spec]:
    """Sources as people write them: a name, several as in "noise + mixed(0.2)", or a list."""
    return NEGATIVES.specs(given, "negatives", "noise + mixed(0.2)")


def amount_of(sources: Sequence[Spec]) -> float:
    """How many rows these sources make for each that they are given, by their amounts."""
    amounts = [NEGATIVES.settings(source).get("amount") for source in sources]
    return float(sum(a for a in amounts if isinstance(a, int | float)))


def look_at_own(sources: Sequence[Spec]) -> bool:
    """Whether some source is made from the rows of the rewarded classes."""
    return any("own" in _wanted(source) for source in sources)


def pools_of(seen: Iterable[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[Pool, ...]:
    """The different pools among hidden and own labels of all modules, in one order."""
    return tuple(sorted({Pool(*one) for one in seen}))


def make_pools(
    sources: Sequence[Spec],
    x: Tensor,
    y: Tensor,
    pools: Sequence[Pool],
    classes: int,
    public: Tensor | None = None,
    apart: bool = False,
) -> tuple[Tensor, Tensor]:
    """Made-up rows of every pool, and their labels: `classes` and those after it.

    A pool is made of the samples whose labels are not hidden, by a stream of its own: what a
    module is not shown does not reach it, nor does it matter which modules it is trained with.
    Amounts are for each of the samples, so that pools come out equally large. `apart`, they are
    for each row of the module's own classes, and no row of another tells how many these are.
    """
    made, labels = [x[:0]], [y[:0]]
    for number, pool in enumerate(pools):
        own = x[_among(y, pool.own)]
        if apart and not len(own):
            raise RecipeError(
                f"there is no training row of the labels {list(pool.own)}, so that their module "
                "has nothing to learn from: leave it out of the partition"
            )
        samples = _few(x, y, pool, len(own)) if apart else _repeated(x, y, pool)
        rows = [
            _call(source, place, pool, {"samples": samples, "own": own, "public": public})
            for place, source in enumerate(sources)
        ]
        made += rows
        labels.append(y.new_full((sum(map(len, rows)),), classes + number))
    sizes = {len(label) for label in labels[1:]}
    if len(sizes) > 1 and not apart and not look_at_own(sources):
        raise RecipeError(
            f"negatives: {' + '.join(map(str, sources))} make pools of {sorted(sizes)} rows: "
            "expected equally many for equally many samples"
        )
    return torch.cat(made), torch.cat(labels)


def _call(source: Spec, place: int, pool: Pool, given: Mapping[str, Any]) -> Tensor:
    samples = given["samples"]
    generator = torch.Generator(samples.device)
    own = ("own", *pool.own) if pool.own else ()
    generator.manual_seed(stream("negatives", place, source, *pool.hidden, *own))
    wanted = {key: value for key, value in given.items() if key in _wanted(source)}
    rows: Tensor = NEGATIVES.call(source, generator=generator, **wanted)
    if rows.shape[1:] != samples.shape[1:]:
        raise RecipeError(
            f"negatives: {source} makes {tuple(rows.shape)} of samples {tuple(samples.shape)}: "
            "expected rows of their shape"
        )
    return rows


def _wanted(source: Spec) -> list[str]:
    parameters = inspect.signature(NEGATIVES[source.name]).parameters
    return [key for key in NEGATIVES.given if key in parameters]


def _repeated(x: Tensor, y: Tensor, pool: Pool) -> Tensor:
    """The samples that are not hidden, as often as makes as many as there are in all."""
    if not pool.hidden:
        return x
    places = (~_among(y, pool.hidden)).nonzero().flatten()
    every = torch.arange(len(x), device=x.device)
    return x[places[every % len(places)]] if len(places) else torch.zeros_like(x)


def _few(x: Tensor, y: Tensor, pool: Pool, count: int) -> Tensor:
    """So many of the samples that are not hidden, evenly spaced."""
    places = (~_among(y, pool.hidden)).nonzero().flatten()
    steps = torch.arange(count, device=x.device) * len(places) // max(1, count)
    return x[places[steps]]


def weigh_pools(
    weight: Tensor, y: Tensor, pools: Sequence[Pool], labels: Tensor, classes: int
) -> Tensor:
    """Weights of made-up rows: each weighs what the samples it was made from do on average.

    Then, as without negatives, doubling all weights changes nothing. `labels` are those of the
    rows, as `make_pools` gives them for so many classes; a small pool may have no row.
    """
    means = [weight[~_among(y, pool.hidden)].mean().nan_to_num() for pool in pools]
    return torch.stack(means)[labels - classes] if len(labels) else weight[:0]


def _among(y: Tensor, labels: tuple[int, ...]) -> Tensor:
    return torch.isin(y, torch.tensor(labels, dtype=y.dtype, device=y.device))


@NEGATIVES.register("noise")
def noise(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
    """Noise of the samples' range: a half uniform, a half Gaussian with a spread of its own.

    The range is that of all pixels together for images, of each feature by itself for tables; a
    feature that never changes gets the usual range.
    """
    low, high = _range(samples)
    width = samples[0].numel()
    by: Any = {"generator": generator, "device": samples.device}

    def rows(first: int, last: int) -> Tensor:
        uniform = low + torch.rand(last - first, width, **by) * (high - low)
        # from a twentieth of the range to half of it, around a point inside it
        spread, middle = torch.rand(2, last - first, 1, **by).unbind()
        bell = torch.randn(last - first, width, **by)
        gaussian = low + (middle + (0.05 + 0.45 * spread) * bell) * (high - low)
        half = torch.arange(first, last, device=samples.device) % 2 == 0
        return torch.where(half[:, None], uniform, gaussian)

    return _made("noise", rows, amount, samples)


@NEGATIVES.register("mixed")
def mixed(samples: Tensor, generator: torch.Generator, amount: float = 0.5) -> Tensor:
    """Rows whose features are each drawn from another sample: every value real, no row."""
    flat = samples.reshape(len(samples), -1)
    by: Any = {"generator": generator, "device": samples.device}
    columns = torch.arange(flat.shape[1], device=samples.device)

    def rows(first: int, last: int) -> Tensor:
        return flat[torch.randint(len(flat), (last - first, len(columns)), **by), columns]

    return _made("mixed", rows, amount, samples)


@NEGATIVES.register("scaled")
def scaled(
    samples: Tensor, generator: torch.Generator, amount: float = 0.5, least: float = 2.0
) -> Tensor:
    """Samples times a factor between `least` and five times that, far from where samples lie."""
    _check_factor("least", least, least=1)
    if not samples.is_floating_point():
        raise RecipeError("negatives: scaled multiplies inputs, and these are whole numbers")
    flat = samples.reshape(len(samples), -1)
    by: Any = {"generator": generator, "device": samples.device}

    def rows(first: int, last: int) -> Tensor:
        chosen = torch.randint(len(flat), (last - first,), **by)
        return flat[chosen] * least * 5 ** torch.rand(last - first, 1, **by)

    return _made("scaled", rows, amount, samples)


@NEGATIVES.register("public")
def public_rows(
    samples: Tensor, generator: torch.Generator, public: Tensor | None = None, amount: float = 1.0
) -> Tensor:
    """Rows of the public set that the data were loaded with; none twice before all were drawn.

    Assumes that hardly any of them is of the rewarded classes: those that are get unlearned.
    """
    if public is None:
        raise RecipeError(
            "negatives: public draws rows of a public set, and the data have none: load them with "
            "public=, an array, a data set or a path"
        )
    shuffled = torch.randperm(len(public), generator=generator, device=public.device)

    def rows(first: int, last: int) -> Tensor:
        numbers = torch.arange(first, last, device=public.device) % len(public)
        return public[shuffled[numbers]].flatten(1)

    return _made("public", rows, amount, samples)


@NEGATIVES.register("gaussian")
def gaussian(
    samples: Tensor,
    generator: torch.Generator,
    public: Tensor | None = None,
    amount: float = 1.0,
    spread: float = 1.0,
) -> Tensor:
    """Gaussian noise with mean and `spread` times the deviation of each feature of the public set.

    Without one the features are taken to have mean 0 and deviation 1, as `standard` scaling makes
    them. Nothing of the samples enters: around the mean of a class lies that class.
    """
    _check_factor("spread", spread, least=0)
    if not samples.is_floating_point():
        raise RecipeError("negatives: gaussian makes numbers, and these inputs are whole numbers")
    width = samples[0].numel()
    mean, deviation = samples.new_zeros(width), samples.new_ones(width)
    if public is not None:
        flat = public.flatten(1)
        mean, deviation = flat.mean(0), flat.std(0, correction=0)
    by: Any = {"generator": generator, "device": samples.device}

    def rows(first: int, last: int) -> Tensor:
        return mean + spread * deviation * torch.randn(last - first, width, **by)

    return _made("gaussian", rows, amount, samples)


@NEGATIVES.register("shuffled")
def shuffled(own: Tensor, generator: torch.Generator, amount: float = 1.0) -> Tensor:
    """Rows of one's own classes with their values put into other features, each row otherwise.

    Assumes features of one scale, as `standard` makes them, and that places matter: a row keeps how
    large its values are and how they spread, and loses which feature has which.
    """
    flat = own.flatten(1)
    by: Any = {"generator": generator, "device": own.device}

    def rows(first: int, last: int) -> Tensor:
        chosen = flat[torch.randint(len(flat), (last - first,), **by)]
        return chosen.gather(1, torch.rand(chosen.shape, **by).argsort(1))

    return _made("shuffled", rows, amount, own)


@NEGATIVES.register("turned")
def turned(own: Tensor, generator: torch.Generator, amount: float = 1.0) -> Tensor:
    """Images of one's own classes, turned by 90, 180 or 270 degrees or flipped; one way each.

    Assumes that what is turned is no longer of its class. Where it is, as with an 8, a 0 or a tile,
    the module unlearns a part of its own class: leave the source out there.
    """
    _check_images("turned", own)
    square = own.shape[-2] == own.shape[-1]
    by: Any = {"generator": generator, "device": own.device}

    def rows(first: int, last: int) -> Tensor:
        images = own[torch.randint(len(own), (last - first,), **by)]
        ways = [images.flip(-1), images.flip(-2), images.flip(-1, -2)]
        if square:  # of others the form would change
            ways += [torch.rot90(images, 1, (-2, -1)), torch.rot90(images, 3, (-2, -1))]
        way = torch.randint(len(ways), (last - first,), **by)
        return torch.stack(ways)[way, torch.arange(last - first, device=own.device)].flatten(1)

    return _made("turned", rows, amount, own)


@NEGATIVES.register("warped")
def warped(own: Tensor, generator: torch.Generator, amount: float = 1.0) -> Tensor:
    """Images of one's own classes, turned by 30 to 330 degrees, sheared and stretched.

    Assumes, as `turned` does, that this takes them out of their class.
    """
    _check_images("warped", own)
    by: Any = {"generator": generator, "device": own.device}

    def rows(first: int, last: int) -> Tensor:
        count = last - first
        images = own[torch.randint(len(own), (count,), **by)]
        angle, wide, high, shear = torch.rand(4, count, **by).unbind()
        angle = torch.deg2rad(30 + 300 * angle)
        wide, high, shear = 0.6 + 0.8 * wide, 0.6 + 0.8 * high, shear - 0.5
        zero = torch.zeros_like(angle)
        upper = torch.stack([angle.cos() * wide, shear - angle.sin() * high, zero], -1)
        lower = torch.stack([angle.sin() * wide, angle.cos() * high, zero], -1)
        grid = affine_grid(torch.stack([upper, lower], 1), list(images.shape), align_corners=False)
        return _moved(images, grid)

    return _made("warped", rows, amount, own)


@NEGATIVES.register("bent")
def bent(
    own: Tensor,
    generator: torch.Generator,
    amount: float = 1.0,
    strength: float = 0.35,
    points: int = 4,
) -> Tensor:
    """Images of one's own classes, bent: a grid of `points` x `points` is pulled at random.

    Each point moves by a Gaussian step of `strength` times half the image, and pixels between them
    follow. Assumes that a shape bent so far is no longer of its class; what it makes looks like a
    drawing of something else, which is why it serves images of shapes best.
    """
    _check_images("bent", own)
    _check_factor("strength", strength, least=0)
    if not isinstance(points, int) or points < 2:
        raise RecipeError(f"negatives: points is {points!r}: expected a whole number from 2")
    by: Any = {"generator": generator, "device": own.device}
    size = list(own.shape[-2:])

    def rows(first: int, last: int) -> Tensor:
        count = last - first
        images = own[torch.randint(len(own), (count,), **by)]
        pulls = strength * torch.randn(count, 2, points, points, **by)
        pulls = interpolate(pulls, size, mode="bilinear", align_corners=True)
        still = torch.eye(2, 3, device=own.device).expand(count, 2, 3)
        grid = affine_grid(still, list(images.shape), align_corners=False)
        return _moved(images, grid + pulls.permute(0, 2, 3, 1))

    return _made("bent", rows, amount, own)


def _moved(images: Tensor, grid: Tensor) -> Tensor:
    """Pixels taken from where the grid says, flat; outside of an image it is as empty as inside."""
    empty = images.amin()
    moved = grid_sample(images.float() - empty, grid, align_corners=False) + empty
    return moved.flatten(1)


def _check_images(name: str, own: Tensor) -> None:
    if own.dim() != 4:
        raise RecipeError(
            f"negatives: {name} moves the pixels of images, and these inputs have the shape "
            f"{tuple(own.shape[1:])}: for tables take gaussian, noise or mixed"
        )


def _check_factor(name: str, value: Any, least: float) -> None:
    if not is_number(value) or value <= least:
        raise RecipeError(f"negatives: {name} is {value!r}: expected a factor above {least:g}")


def _made(name: str, rows: Callable[[int, int], Tensor], amount: float, samples: Tensor) -> Tensor:
    """`amount` rows for each sample, in its shape, made in pieces that fit the memory."""
    number = isinstance(amount, int | float) and not isinstance(amount, bool)
    if not number or not 0 <= amount < float("inf"):
        raise RecipeError(
            f"negatives: the amount of {name} is {amount!r}: expected how many rows to make for "
            "each real one, a number from 0"
        )
    count = round(amount * len(samples))
    step = max(1, CHUNK // max(1, samples[0].numel()))
    if not count:
        return samples[:0].clone()
    made = torch.cat([rows(first, min(first + step, count)) for first in range(0, count, step)])
    if not samples.is_floating_point():
        made = made.round()
    return made.to(samples.dtype).reshape(count, *samples.shape[1:])


def _range(samples: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value, of all pixels together or feature by feature."""
    flat = samples.reshape(len(samples), -1)
    if not flat.is_floating_point():
        flat = flat.float()
    if samples.dim() > 2:
        return flat.amin(), flat.amax()
    low, high = flat.amin(0), flat.amax(0)
    width = high - low
    usual = width[width > 0].median() if bool((width > 0).any()) else torch.ones_like(width[0])
    still = width == 0
    return torch.where(still, low - usual / 2, low), torch.where(still, high + usual / 2, high)
