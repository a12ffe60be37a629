"""Which modules can be joined, which one is meant, and whether what came out is healthy."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from intarsia.composition.operators.registry import On
from intarsia.data import Split, subsample
from intarsia.errors import CompositionError, ModelError, RecipeError, shortened
from intarsia.models.custom.trial import trial_inputs
from intarsia.modules import Finding, Health, Module, find
from intarsia.modules.health import answers_alike, made_up_inputs, some_of
from intarsia.modules.traits import (
    ADOPTED_ORIGIN,
    BASE,
    CATALOGUE,
    MODEL,
    NAMES,
    ORIGIN,
    SCALING,
    SHAPE,
    TEMPERATURE,
    TENSORS,
    Trait,
    check_traits,
)

NEEDED: dict[On, tuple[Trait, ...]] = {
    "logits": (CATALOGUE, SHAPE, TEMPERATURE),
    "units": (CATALOGUE, MODEL, NAMES, SCALING, TEMPERATURE),
    "weights": (CATALOGUE, MODEL, TENSORS, SCALING, TEMPERATURE, BASE, ORIGIN),
}


ROWS, FEWER = 64, 8  # of the samples that a composition keeps, to ask it about; of large networks
LARGEST = 5_000_000  # parameters: larger ones are not asked about inputs that are made up
NAME = "composition"


def check_fit(modules: Iterable[Module], on: On, aligned: bool = False) -> tuple[Module, ...]:
    """The modules sorted by name, if they can be joined; a CompositionError that says why not.

    Those that are to be aligned may come from several origins.
    """
    modules = tuple(modules) if isinstance(modules, Iterable) else (modules,)
    for module in modules:
        if not isinstance(module, Module):
            raise CompositionError(
                f"a {type(module).__name__} cannot be joined: give modules, as Module.of makes of "
                "a network, Module.load reads from a file and Bank.load from a folder, or the "
                "parts of a composition"
            )
    if not modules:
        raise CompositionError("a composition needs at least one module, this would leave none")
    _check_probes(modules)
    needed = tuple(trait for trait in NEEDED[on] if not (aligned and trait in (BASE, ORIGIN)))
    for module in modules[1:]:
        trained = module.provenance  # which a network from elsewhere does not bring
        own = [ADOPTED_ORIGIN if t is ORIGIN and not trained else t for t in needed]
        check_traits(modules[0], module, own)
        if on != "logits":
            _check_factory(modules[0], module)
    parts = tuple(sorted(modules, key=lambda module: module.name))
    for one, other in pairwise(parts):
        if one.name == other.name:
            weights = "" if one.digest == other.digest else ", with other weights"
            raise CompositionError(
                f"module {one.name!r} is given twice{weights}: leave one out, or rename it"
            )
    return parts


def locate(parts: Sequence[Module], key: str | Module) -> Module:
    """The part that is meant by its name, by the class it alone recognises, or by itself."""
    if isinstance(key, Module):
        return _same(parts, key)
    if not isinstance(key, str):
        raise CompositionError(
            f"cannot remove {shortened(key)}: give a module or its name, such as {parts[0].name!r}"
        )
    try:
        return find(parts, key)
    except RecipeError as error:
        shared = [part.name for part in parts if key in part.rewarded]
        if len(shared) == 1:
            raise CompositionError(
                f"class {key!r} cannot be taken out alone, module {shared[0]!r} recognises it "
                f"together with others: remove {shared[0]!r}"
            ) from error
        raise CompositionError(f"cannot remove {key!r}: {error}") from error


def _same(parts: Sequence[Module], module: Module) -> Module:
    for part in parts:
        if part is module or (part.name == module.name and part.digest == module.digest):
            return part
    names = [part.name for part in parts]
    if module.name in names:
        raise CompositionError(
            f"the composition's module {module.name!r} has other weights than the one to remove: "
            f"remove it by name, {module.name!r}"
        )
    raise CompositionError(
        f"cannot remove module {module.name!r}: it is not a part; parts: {', '.join(names)}"
    )


def _check_probes(modules: Sequence[Module]) -> None:
    """A factory may make another network today than when a module was trained with it."""
    distinct = {(id(m.factory), m.architecture.probe): m for m in reversed(modules)}
    for module in distinct.values():
        try:
            module.architecture.check_probe(module.factory)
        except ModelError as error:
            raise CompositionError(f"module {module.name!r} cannot be joined: {error}") from error


def _check_factory(first: Module, module: Module) -> None:
    """Two factories may give one list of tensors, and yet not one function of them."""
    if module.factory is first.factory:
        return
    same = first.architecture.plan(module.factory) == first.plan
    if same:
        mine, other = (
            first.architecture.network(first.state, factory)
            for factory in (first.factory, module.factory)
        )
        x = trial_inputs(mine, first.architecture.shape)
        with torch.no_grad():
            same = torch.allclose(mine(x), other(x), rtol=1e-3, atol=1e-4)
    if not same:
        raise CompositionError(
            f"module {module.name!r} does not fit module {first.name!r}: with the same weights its "
            "factory makes a network that answers otherwise: train both with one factory, or join "
            'them by "logits"'
        )


def composition_health(
    parts: Sequence[Module],
    parameters: int,
    samples: Split | None,
    answer: Callable[[Tensor], Tensor],
) -> Health:
    """The health of a composition of so many parameters, and that of its parts.

    `answer` takes raw inputs to logits. It is dead where these are the same for all samples
    it keeps, or, if it keeps none, for inputs that are made up. It is inconsistent where some
    classes are rewarded by more parts than others: what is added up then counts them more often.
    """
    own = [*_dead(parts, parameters, samples, answer), *_counted_twice(parts)]
    return Health.of((part.health for part in parts), *own)


def _dead(
    parts: Sequence[Module],
    parameters: int,
    samples: Split | None,
    answer: Callable[[Tensor], Tensor],
) -> list[Finding]:
    small = parameters <= LARGEST
    some = None if samples is None else subsample(samples, ROWS if small else FEWER).x
    if some is None and small:
        some = _made_up(parts[0])
    if some is None or not bool((some != some[:1]).any()):
        return []
    try:
        if not answers_alike(answer(some)):
            return []
    except Exception:  # a network may be made for other inputs than those that are made up
        return []
    dead = [part.name for part in parts if any(f.kind == "dead" for f in part.health.findings)]
    what = f"{len(some)} {'inputs that were made up' if samples is None else 'samples'}"
    advice = "join the modules by logits, or give their weights other factors"
    if dead:
        advice = f"train {some_of(dead)} again, at a lower sparsity"
    return [Finding("dead", NAME, f"it answers the same to all of {what}", advice)]


def _made_up(module: Module) -> Tensor | None:
    """Raw inputs that the module's scaling takes to inputs of many sizes."""
    inputs = made_up_inputs(module.architecture.shape)
    if inputs is None or module.scaling.kind == "none":
        return inputs
    return inputs / module.scaling.scale + module.scaling.shift


def _counted_twice(parts: Sequence[Module]) -> list[Finding]:
    counts = Counter(name for part in parts for name in part.rewarded)
    most, least = max(counts.values()), min(counts.values())
    if most == least:
        return []
    often = [name for name in counts if counts[name] == most]
    seldom = next(name for name in counts if counts[name] == least)
    message = (
        f"{most} parts reward {some_of(often)} and {least} {seldom!r}: what they add up counts "
        "the former more often"
    )
    advice = "leave modules out until each class has equally many"
    return [Finding("inconsistent", NAME, message, advice)]
