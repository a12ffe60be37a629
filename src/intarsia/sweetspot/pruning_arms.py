"""Ways to prune pattern networks to the same number of weights, so that they can be compared.

Each is a function in ARMS from one network to another whose masks say what stays. A budget counts
weights that are not 0 once dead units have gone: those that no input reaches, or that reach no
output. It is met exactly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from intarsia.errors import ModelError, RecipeError, shortened
from intarsia.files import stream
from intarsia.specs import Registry, is_number
from intarsia.sweetspot.networks import (
    ACTIVATIONS,
    INPUTS,
    LINEAR,
    OUTPUTS,
    PatternBank,
    PatternLayout,
    PatternNetwork,
    activate,
    coordinates,
    forward,
)
from intarsia.sweetspot.pattern_fits import fit
from intarsia.sweetspot.pictures import check_size

ARMS = Registry(
    "pruning arm",
    given=("network", "context"),
    own_budget=False,
    rewinds=False,
    needs_wiring=False,
    held=lambda settings, wiring: None,
)
"""Ways of pruning pattern networks; `@ARMS.register("mine")` adds one.

Traits, all of them off by default: `own_budget`, how much goes follows from the arm's settings;
`rewinds`, survivors go back to the weights they started from; `needs_wiring`, another network says
which connections there are; `held`, a function of the settings and of that network: masks of what
is not to be trained, or None.
"""

PIXELS = 32  # along an edge of maps
STEPS = 30  # of a bisection
SILENT = 1e-7  # of the largest norm in a layer

Matrices = list[Tensor]


@dataclass(frozen=True)
class ArmContext:
    """What an arm may look at beside the network."""

    weights: int | None  # that are to stay; None where the arm's own settings say it
    size: int  # pixels along an edge, where maps are compared
    generator: torch.Generator
    wiring: PatternNetwork | None = None

    def budget(self) -> int:
        """The weights that are to stay."""
        if self.weights is None:
            raise RecipeError("this arm prunes to a number of weights: give `weights`")
        return self.weights


def prune(
    networks: PatternBank | PatternNetwork | Sequence[PatternNetwork],
    arm: str,
    *,
    weights: int | None = None,
    map_size: int = PIXELS,
    seed: int = 0,
    origin: PatternBank | PatternNetwork | None = None,
    rewind: bool = False,
    wiring: PatternNetwork | None = None,
    image: Any = None,
    **settings: Any,
) -> PatternBank:
    """Prune every network to `weights` nonzero weights, and train on where `settings` ask for it.

    `arm` is a name of ARMS with its settings, as in "similarity(within='linear')". Maps are
    compared at `map_size` pixels along an edge. With `rewind` survivors go back to `origin`, the
    weights before training, as a lottery ticket's always do. `wiring` is the network whose
    connections the arm "evolved" takes. With an `image` the result is trained on by `fit`, under
    the `settings` given, such as steps=2500.
    """
    bank = _as_bank(networks)
    spec = ARMS.spec(arm)
    entry = ARMS[spec.name]
    _check(bank, spec.name, entry, weights, wiring)
    back = rewind or entry.rewinds
    if back and origin is None:
        raise RecipeError(
            f"pruning arm {spec.name!r} rewinds survivors: give `origin`, the networks before they "
            "were trained"
        )
    if settings and image is None:
        raise RecipeError(
            f"{', '.join(sorted(settings))} are settings of training on, which needs the `image`"
        )
    pruned = []
    for place, network in enumerate(bank):
        draw = torch.Generator().manual_seed(stream("arm", spec.name, seed, place))
        context = ArmContext(weights, check_size(map_size, "map_size"), draw, wiring)
        pruned.append(ARMS.call(spec, network=network, context=context))
    if back:
        assert origin is not None
        pruned = _rewound(pruned, _as_bank(origin))
    report = {
        **{key: own for key, own in bank.report.items() if key != "key"},  # of what fit has made
        "arm": str(spec),
        "weights": [network.nonzero for network in pruned],
        "rewound": back,
    }
    result = replace(PatternBank.of(pruned), names=bank.names, report=report)
    if image is None:
        return result
    held = entry.held(ARMS.settings(spec), wiring)
    fitted = fit(image, start=result, held=held, **settings)
    return replace(fitted, names=bank.names, report={**report, **fitted.report})


def live_masks(layout: PatternLayout, weights: Sequence[Tensor]) -> list[Tensor]:
    """True where a weight is not 0 and takes part in the picture.

    Its source must get an input, or have an activation that is not 0 at 0, as the gaussian's is;
    its target must reach an output.
    """
    constant = _constants(layout)
    kept = [w != 0 for w in weights]
    gets = [torch.ones(INPUTS, dtype=torch.bool)]
    for matrix in kept[:-1]:
        gets.append((matrix & gets[-1]).any(1) | constant)
    reaches = torch.ones(OUTPUTS, dtype=torch.bool)
    live = []
    for matrix, source in zip(reversed(kept), reversed(gets), strict=True):
        live.append(matrix & source & reaches[:, None])
        reaches = matrix.logical_and(reaches[:, None]).any(0)
    return live[::-1]


def keep_best(
    layout: PatternLayout, weights: Sequence[Tensor], scores: Sequence[Tensor], budget: int
) -> Matrices:
    """The weights with the highest scores, so many that exactly `budget` of them live.

    First the shortest list from the top of which as many live; of these the lowest go whose going
    leaves no fewer. Where even then there are too many, one more goes, with all that die by it, and
    the best that join live units come back.
    """
    alive = live_masks(layout, weights)
    total = _count(alive)
    if not 0 < budget <= total:
        raise RecipeError(
            f"cannot keep {budget} weights of a network in which {total} take part in the "
            f"picture: give 1 to {total}"
        )
    flat = torch.cat([torch.where(m, s, -torch.inf).flatten() for m, s in _pairs(alive, scores)])
    order = torch.argsort(flat, descending=True, stable=True)[:total]

    def best(count: int) -> Matrices:
        chosen = torch.zeros(len(flat), dtype=torch.bool)
        chosen[order[:count]] = True
        return _without_dead(layout, _masked(weights, chosen))

    low, high = budget - 1, total  # fewer than the budget cannot hold as many live ones
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _nonzero(best(middle)) < budget else (low, middle)
    kept = _trim(layout, best(high), scores, budget)
    if _nonzero(kept) > budget:
        kept = _filled(layout, _largest_below(layout, kept, budget), weights, flat, budget)
    if _nonzero(kept) != budget:
        raise RecipeError(
            f"no choice of weights was found of which exactly {budget} take part in the picture: "
            "give another number"
        )
    return kept


@ARMS.register("magnitude")
def magnitude(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """The largest weights of the whole network stay."""
    scores = [w.abs() for w in network.weights]
    return _by_scores(network, scores, context)


@ARMS.register("ticket", rewinds=True)
def ticket(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """The lottery ticket: the largest weights stay, and go back to where they started."""
    return magnitude(network, context)


@ARMS.register("wanda")
def wanda(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """Of every unit's inputs the same share stays, those of the largest |w| norm(A).

    The score of arXiv 2306.11695, ranked in each row. A share that gives no whole number is rounded
    up, as the authors do, so that no unit loses its last input; for which rows the budget still
    has room is settled by the larger scores.
    """
    scores = []
    for matrix, score in zip(network.weights, _contributions(network, context), strict=True):
        order = torch.argsort(score, dim=1, descending=True, stable=True)
        share = torch.argsort(order, dim=1) / (matrix != 0).sum(1, keepdim=True).clamp(min=1)
        scores.append(-share + 1e-6 * score / (score.max() + 1e-30))
    return _by_scores(network, scores, context)


@ARMS.register("random")
def random(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """Any weights stay: the control for arms that choose weights."""
    scores = [torch.rand(w.shape, generator=context.generator) for w in network.weights]
    return _by_scores(network, scores, context)


@ARMS.register("similarity")
def similarity(
    network: PatternNetwork,
    context: ArmContext,
    by: str = "cosine",
    threshold: float | None = None,
    within: str = "all",
) -> PatternNetwork:
    """The two units of a layer whose maps are most alike become one, again and again.

    The one of larger norm stays and takes over the other's outgoing weights, w_i += c w_j with
    c = <A_i, A_j> / <A_i, A_i>. Likeness is the |cosine| of the maps, or the |correlation|. It ends
    at the budget; with a `threshold` already where no pair is as alike as that, and what is still
    too much for a budget goes by the smallest |w| norm(A). `within` "linear" leaves all units
    alone whose activation is not linear.
    """
    _check_likeness(by, threshold)
    if within not in ("all", "linear"):
        raise RecipeError(f"within is {shortened(within)}: use 'all' or 'linear'")
    linear = torch.tensor([name in LINEAR for name in network.layout.activations])
    allowed = linear if within == "linear" else torch.ones_like(linear)

    def choose(weights: Matrices, maps: Tensor, alive: Tensor) -> _Removal | None:
        return _most_alike(maps, alive & allowed, by == "correlation", threshold)

    return _without_units(network, context, choose, required=threshold is None)


@ARMS.register("random_units")
def random_units(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """Any units go: the control for arms that choose units."""
    layout = network.layout
    order = torch.rand(layout.depth, layout.width, generator=context.generator)

    def choose(weights: Matrices, maps: Tensor, alive: Tensor) -> _Removal | None:
        return _lowest(order, alive)

    return _without_units(network, context, choose)


@ARMS.register("contribution")
def contribution(network: PatternNetwork, context: ArmContext) -> PatternNetwork:
    """The units go that give the smallest share of what their layer does: norm(A) norm(W_out)."""

    def choose(weights: Matrices, maps: Tensor, alive: Tensor) -> _Removal | None:
        outgoing = torch.stack([w.norm(dim=0) for w in weights[1:]])
        given = maps.norm(dim=2) * outgoing
        return _lowest(given / given.sum(1, keepdim=True).clamp(min=1e-30), alive)

    return _without_units(network, context, choose)


@ARMS.register("connections")
def connections(
    network: PatternNetwork, context: ArmContext, by: str = "cosine", threshold: float | None = None
) -> PatternNetwork:
    """Of a unit's inputs those go that are like a stronger one, which takes over their weight.

    Inputs are looked at by falling |w| norm(A); one that is more alike than a threshold to one that
    stays is folded into it. The threshold is the largest that meets the budget, or given; what
    is still too much goes by the smallest |w| norm(A).
    """
    _check_likeness(by, threshold)
    inputs, centred = coordinates(context.size), by == "correlation"

    def folded(least: float) -> Matrices:
        return _without_dead(
            network.layout, _folded_inputs(network.layout, network.weights, inputs, centred, least)
        )

    if threshold is not None and context.weights is None:
        return _masked_network(network, folded(threshold))
    budget = context.budget()
    _check_budget(network, budget)
    if threshold is None:
        low, threshold = 0.0, 1.0 + 1e-6
        for _ in range(STEPS):
            middle = (low + threshold) / 2
            fits = _nonzero(folded(middle)) >= budget
            low, threshold = (low, middle) if fits else (middle, threshold)
    result = folded(threshold)
    if (left := _nonzero(result)) < budget:
        raise RecipeError(
            f"a threshold of {threshold:g} leaves {left} weights, fewer than the {budget} that are "
            "to stay: raise it, or leave it out"
        )
    return _masked_network(network, _by_contribution(network, result, context))


@ARMS.register(
    "evolved",
    own_budget=True,
    needs_wiring=True,
    held=lambda settings, wiring: copy_masks(wiring) if settings["copies"] == "held" else None,
)
def evolved(
    network: PatternNetwork, context: ArmContext, copies: str = "trained"
) -> PatternNetwork:
    """The connections of an evolved network, with the weights of this one.

    Weights of exactly 1 into `cache` units are copies that only carry a value past a layer:
    "trained" like all others, or "held" at 1 when the network is trained on.
    """
    if copies not in ("trained", "held"):
        raise RecipeError(f"copies is {shortened(copies)}: use 'trained' or 'held'")
    wiring = context.wiring
    assert wiring is not None
    kept = [torch.where(there != 0, w, 0) for w, there in _pairs(network.weights, wiring.weights)]
    if _nonzero(kept) < wiring.nonzero:
        raise RecipeError(
            f"{network.name or 'the network'} has 0 at {wiring.nonzero - _nonzero(kept)} of the "
            f"{wiring.nonzero} places of the evolved connections: give one that is not pruned"
        )
    if copies == "held":
        masks = copy_masks(wiring)
        kept = [torch.where(copy, 1.0, w) for w, copy in zip(kept, masks, strict=True)]
    return _masked_network(network, kept)


def copy_masks(network: PatternNetwork) -> list[Tensor]:
    """True where a weight is a copy: exactly 1, into a `cache` unit, and its only input."""
    cache = torch.tensor([name == "cache" for name in network.layout.activations])
    masks = [
        (w == 1) & ((w != 0).sum(1, keepdim=True) == 1) & cache[:, None]
        for w in network.weights[:-1]
    ]
    return [*masks, torch.zeros_like(network.weights[-1], dtype=torch.bool)]


_Removal = tuple[int, int, int | None, float]
"""Layer, the unit that goes, the one that takes over its outgoing weights, and how much of them."""


def _without_units(
    network: PatternNetwork,
    context: ArmContext,
    choose: Callable[[Matrices, Tensor, Tensor], _Removal | None],
    required: bool = True,
) -> PatternNetwork:
    """Units go one by one while at least the budget is left; what remains goes weight by weight.

    One unit of every layer stays.
    """
    layout, inputs = network.layout, coordinates(context.size)
    budget = context.budget() if required else context.weights or 0
    if budget:
        _check_budget(network, budget)
    weights = _without_dead(layout, network.weights)
    while _nonzero(weights) > budget:
        maps = torch.stack(forward(layout, weights, inputs)[1])  # depth, width, pixels
        alive = torch.stack([(w != 0).any(0) for w in weights[1:]])
        removal = choose(weights, maps, alive)
        if removal is None:
            if required:
                raise RecipeError(
                    f"{_nonzero(weights)} weights are left and no unit can go, since one of each "
                    f"layer stays: give at least as many, not {budget}"
                )
            break
        smaller = _without_dead(layout, _removed(weights, removal))
        if _nonzero(smaller) < budget:
            break
        weights = smaller
    if budget and _nonzero(weights) > budget:
        weights = _by_contribution(network, weights, context)
    return _masked_network(network, weights)


def _by_contribution(network: PatternNetwork, weights: Matrices, context: ArmContext) -> Matrices:
    """So many weights as the budget has room for: those of the largest |w| norm(A)."""
    changed = replace(network, weights=tuple(weights), masks=None)
    scores = _contributions(changed, context)
    return keep_best(network.layout, weights, scores, context.budget())


def _check_likeness(by: Any, threshold: Any) -> None:
    if by not in ("cosine", "correlation"):
        raise RecipeError(f"unknown likeness {by!r} of maps: use 'cosine' or 'correlation'")
    if threshold is not None and not (is_number(threshold) and 0 <= threshold <= 1):
        raise RecipeError(
            f"threshold is {shortened(threshold)}: expected a likeness from 0 to 1, or None"
        )


def _removed(weights: Matrices, removal: _Removal) -> Matrices:
    layer, unit, heir, amount = removal
    after = list(weights)
    after[layer], after[layer + 1] = after[layer].clone(), after[layer + 1].clone()
    if heir is not None:
        change = amount * after[layer + 1][:, unit]
        after[layer + 1][:, heir] = _finite_sum(after[layer + 1][:, heir], change)
    after[layer][unit] = 0
    after[layer + 1][:, unit] = 0
    return after


def _finite_sum(weights: Tensor, change: Tensor) -> Tensor:
    """Weights with a change, but where that is no number: maps of a large network may overflow."""
    total = weights + change
    return torch.where(total.isfinite(), total, weights)


def _most_alike(
    maps: Tensor, alive: Tensor, centred: bool, threshold: float | None
) -> _Removal | None:
    """The pair of units in one layer whose maps are most alike; of these the weaker one goes."""
    alike = _likeness(maps, centred)
    pairs = alive[:, :, None] & alive[:, None, :] & ~torch.eye(alive.shape[1], dtype=torch.bool)
    alike = alike.masked_fill(~pairs, -1.0)
    place = int(alike.argmax())
    layer, rest = divmod(place, alike.shape[1] ** 2)
    one, other = divmod(rest, alike.shape[1])
    largest = float(alike[layer, one, other])
    if largest < (0 if threshold is None else threshold):
        return None
    norms = maps[layer].norm(dim=1)
    heir, unit = (one, other) if norms[one] >= norms[other] else (other, one)
    square = float(norms[heir].square())
    amount = float(maps[layer, heir] @ maps[layer, unit]) / square if square else 0.0
    return layer, unit, heir, amount


def _lowest(scores: Tensor, alive: Tensor) -> _Removal | None:
    """The unit with the lowest score, if it is not the last of its layer."""
    may_go = alive & (alive.sum(1, keepdim=True) > 1)
    if not may_go.any():
        return None
    layer, unit = divmod(int(scores.masked_fill(~may_go, torch.inf).argmin()), scores.shape[1])
    return layer, unit, None, 0.0


def _likeness(maps: Tensor, centred: bool) -> Tensor:
    """|cosine| or |correlation| of maps (..., units, pixels): (..., units, units).

    A map of zeros is like all others; one that never changes correlates with none.
    """
    if centred:
        maps = maps - maps.mean(-1, keepdim=True)
    norms = maps.norm(dim=-1, keepdim=True)
    silent = norms <= SILENT * norms.amax(-2, keepdim=True).clamp(min=1e-30)
    directions = maps / norms.masked_fill(silent, 1.0)
    alike = (directions @ directions.mT).abs().clamp(max=1.0)
    either = silent | silent.mT
    return alike.masked_fill(either, 0.0 if centred else 1.0)


def _folded_inputs(
    layout: PatternLayout,
    weights: Sequence[Tensor],
    inputs: Tensor,
    centred: bool,
    least: float,
) -> Matrices:
    """Layer by layer from the inputs, every row without inputs that are like a stronger one."""
    values, after = inputs, []
    for depth, matrix in enumerate(weights):
        after.append(_folded_rows(matrix, values, _likeness(values, centred), least))
        if depth < layout.depth:
            values = activate(layout, after[-1] @ values)
    return after


def _folded_rows(matrix: Tensor, values: Tensor, alike: Tensor, least: float) -> Tensor:
    """Each row's inputs by falling |w| norm(A): one too much like a kept one is folded into it."""
    rows = torch.arange(len(matrix))
    products = values @ values.T
    order = torch.argsort(matrix.abs() * values.norm(dim=1), dim=1, descending=True, stable=True)
    kept = torch.zeros_like(matrix, dtype=torch.bool)
    after = matrix.clone()
    for place in range(matrix.shape[1]):
        column = order[:, place]
        there = matrix[rows, column] != 0
        closest, heir = alike[column].masked_fill(~kept, -1.0).max(1)
        goes = there & (closest > least)
        amount = products[heir, column] / products[heir, heir].clamp(min=1e-30)
        change = (amount * matrix[rows, column])[goes]
        after[rows[goes], heir[goes]] = _finite_sum(after[rows[goes], heir[goes]], change)
        after[rows[goes], column[goes]] = 0
        kept[rows, column] = there & ~goes
    return torch.where(kept, after, 0)


def _contributions(network: PatternNetwork, context: ArmContext) -> Matrices:
    """|w| norm(A) of every weight, A the map that it reads."""
    inputs = coordinates(context.size)
    _, maps = forward(network.layout, network.weights, inputs)
    read = [inputs, *maps]
    return [w.abs() * values.norm(dim=1) for w, values in zip(network.weights, read, strict=True)]


def _by_scores(
    network: PatternNetwork, scores: Sequence[Tensor], context: ArmContext
) -> PatternNetwork:
    weights = keep_best(network.layout, network.weights, scores, context.budget())
    return _masked_network(network, weights)


def _trim(
    layout: PatternLayout, weights: Matrices, scores: Sequence[Tensor], budget: int
) -> Matrices:
    """Weights of the lowest scores go, one by one, where at least the budget is left."""
    count = _nonzero(weights)
    if count == budget:
        return weights
    constant = _constants(layout)
    places = [(m != 0).nonzero().tolist() for m in weights]
    ranked = sorted(
        (float(scores[layer][row, column]), layer, row, column)
        for layer, own in enumerate(places)
        for row, column in own
    )
    for _, layer, row, column in ranked:
        value = weights[layer][row, column].clone()
        if value == 0:  # it went with another
            continue
        feeds_others = layer == 0 or int((weights[layer][:, column] != 0).sum()) > 1
        is_last = layer == layout.depth
        fed_by_others = is_last or int((weights[layer][row] != 0).sum()) > 1 or constant[row]
        weights[layer][row, column] = 0
        if feeds_others and fed_by_others:
            count -= 1
        else:
            smaller = _without_dead(layout, weights)
            left = _nonzero(smaller)
            if left < budget:
                weights[layer][row, column] = value
                continue
            weights, count = smaller, left
        if count == budget:
            break
    return weights


def _largest_below(layout: PatternLayout, weights: Matrices, budget: int) -> Matrices:
    """Without the weight whose going leaves the most of those that leave fewer than the budget."""
    best = [torch.zeros_like(w) for w in weights]
    for layer, matrix in enumerate(weights):
        for row, column in matrix.nonzero().tolist():
            without = list(weights)
            without[layer] = matrix.clone()
            without[layer][row, column] = 0
            without = _without_dead(layout, without)
            if _nonzero(best) < _nonzero(without) < budget:
                best = without
    return best


def _filled(
    layout: PatternLayout, kept: Matrices, weights: Sequence[Tensor], flat: Tensor, budget: int
) -> Matrices:
    """With the best weights that join units which live, as many as are missing."""
    everyone = torch.ones(INPUTS, dtype=torch.bool), torch.ones(OUTPUTS, dtype=torch.bool)
    alive = [everyone[0], *[(w != 0).any(0) for w in kept[1:]], everyone[1]]
    joins = [alive[n][None, :] & alive[n + 1][:, None] & (w == 0) for n, w in enumerate(kept)]
    ranked = flat.masked_fill(~torch.cat([j.flatten() for j in joins]), -torch.inf)
    ranked, order = ranked.sort(descending=True, stable=True)
    chosen = torch.cat([(w != 0).flatten() for w in kept])
    missing = budget - _nonzero(kept)
    chosen[order[:missing][ranked[:missing].isfinite()]] = True
    return _masked(weights, chosen)


def _masked_network(network: PatternNetwork, weights: Sequence[Tensor]) -> PatternNetwork:
    return replace(network, weights=tuple(weights), masks=tuple(w != 0 for w in weights))


def _rewound(pruned: Sequence[PatternNetwork], origin: PatternBank) -> list[PatternNetwork]:
    if len(origin) not in (1, len(pruned)) or origin.layout != pruned[0].layout:
        raise RecipeError(
            f"origin has {len(origin)} networks of {origin.layout}, and {len(pruned)} of "
            f"{pruned[0].layout} were pruned: give the ones that these were trained from"
        )
    starts = [origin[k if len(origin) > 1 else 0] for k in range(len(pruned))]
    rewound = [
        replace(network, weights=start.weights)
        for network, start in zip(pruned, starts, strict=True)
    ]
    for network, back in zip(pruned, rewound, strict=True):
        if (missing := network.nonzero - back.nonzero) > 0:
            raise RecipeError(
                f"origin has 0 at {missing} of the {network.nonzero} weights that stay: give the "
                "networks as they were before they were pruned"
            )
    return rewound


def _as_bank(
    networks: PatternBank | PatternNetwork | Sequence[PatternNetwork],
) -> PatternBank:
    if isinstance(networks, PatternBank):
        return networks
    given = [networks] if isinstance(networks, PatternNetwork) else networks
    sound = isinstance(given, Sequence) and all(isinstance(n, PatternNetwork) for n in given)
    if not sound:
        raise ModelError(
            f"what is to be pruned is {shortened(networks)}: expected a PatternBank, a "
            "PatternNetwork, or a list of them"
        )
    return PatternBank.of(given)


def _check(
    bank: PatternBank, name: str, entry: Any, weights: int | None, wiring: PatternNetwork | None
) -> None:
    if weights is not None and (type(weights) is not int or weights < 1):
        raise RecipeError(f"weights is {shortened(weights)}: expected a whole number from 1")
    if entry.own_budget and weights is not None:
        raise RecipeError(f"how many weights arm {name!r} keeps follows from it: leave out weights")
    if entry.needs_wiring and wiring is None:
        raise RecipeError(f"arm {name!r} takes the connections of another network: give `wiring`")
    if entry.needs_wiring and wiring is not None and wiring.layout != bank.layout:
        raise RecipeError(
            f"the wiring has {wiring.layout}, the networks {bank.layout}: they must be the same"
        )


def _check_budget(network: PatternNetwork, budget: int) -> None:
    total = _count(live_masks(network.layout, network.weights))
    if budget > total:
        raise RecipeError(
            f"cannot keep {budget} weights of a network in which {total} take part in the "
            f"picture: give 1 to {total}"
        )


def _constants(layout: PatternLayout) -> Tensor:
    """The units that answer without any input."""
    zero = torch.zeros(1)
    return torch.tensor([bool(ACTIVATIONS[name](zero) != 0) for name in layout.activations])


def _without_dead(layout: PatternLayout, weights: Sequence[Tensor]) -> Matrices:
    return [torch.where(m, w, 0) for m, w in _pairs(live_masks(layout, weights), weights)]


def _masked(weights: Sequence[Tensor], chosen: Tensor) -> Matrices:
    parts = chosen.split([w.numel() for w in weights])
    return [torch.where(part.view(w.shape), w, 0) for part, w in _pairs(parts, weights)]


def _pairs(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(one, other, strict=True))


def _count(masks: Sequence[Tensor]) -> int:
    return sum(int(mask.sum()) for mask in masks)


def _nonzero(weights: Sequence[Tensor]) -> int:
    return sum(int(w.count_nonzero()) for w in weights)
