"""Diagnosis: what is wrong with modules that were joined, besides what is wrong with each."""

from collections import Counter
from collections.abc import Callable, Sequence

from torch import Tensor

from intarsia.data import Split, few
from intarsia.modules import Finding, Health, Module
from intarsia.modules.health import answers_alike, made_up_inputs, some_of

ROWS, FEWER = 64, 8  # of the samples that a composition keeps, to ask it about; of large networks
LARGEST = 5_000_000  # parameters: larger ones are not asked about inputs that are made up
NAME = "composition"


def composition_health(
    parts: Sequence[Module],
    held: Sequence[Module],
    samples: Split | None,
    answer: Callable[[Tensor], Tensor],
) -> Health:
    """The health of a whole that runs the networks `held`, and that of its parts.

    `answer` takes raw inputs to logits. A whole is dead where these are the same for all samples
    it keeps, or, if it keeps none, for inputs that are made up. It is inconsistent where some
    classes are rewarded by more parts than others: what is added up then counts them more often.
    """
    own = [*_dead(parts, held, samples, answer), *_counted_twice(parts)]
    return Health.of((part.health for part in parts), *own)


def _dead(
    parts: Sequence[Module],
    held: Sequence[Module],
    samples: Split | None,
    answer: Callable[[Tensor], Tensor],
) -> list[Finding]:
    small = sum(module.parameters for module in held) <= LARGEST
    some = None if samples is None else few(samples, ROWS if small else FEWER).x
    if some is None and small:
        some = _made_up(held[0])
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
