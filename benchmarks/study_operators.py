"""Which operators join all modules best, as far as the test can tell."""

from collections import Counter
from collections.abc import Mapping, Sequence

from intarsia.composition import OPERATORS
from intarsia.measure.significance import above
from study_counting import by_mean, listed, several

Ends = Mapping[str, Sequence[float]]  # accuracies of all modules, by operator
SAID = {"own": "own (each class's logit from its own module)"}


def operators(places: Sequence[Ends], half: str) -> dict[str, str]:
    """Points: which operators the test puts above all others, and which are level with the best.

    Of all, and of those on weights, which give one network of the same shape. Operators that are
    equal to the digit are not told apart, and a place in which all are, which modules that are cut
    through make, is skipped.
    """
    apart = [ends for ends in places if len(_distinct(ends)) > 1]
    if not apart:
        return {}
    skipped = len(places) - len(apart)
    same = f"; {skipped} more, where all answer alike, left out"
    result = {f"Operators {half}": f"{_ranked(apart)}{same if skipped else ''}."}
    shaped = [{name: own for name, own in ends.items() if _keeps_shape(name)} for ends in apart]
    told = [ends for ends in shaped if len(_distinct(ends)) > 1]
    if told:
        result[f"Those that give one network of the same shape, {half}"] = f"{_ranked(told)}."
    return result


def _ranked(places: Sequence[Ends]) -> str:
    alone: Counter[str] = Counter()
    level: Counter[str] = Counter()
    for ends in places:
        top = best_operators(ends)
        (alone if len(_distinct({name: ends[name] for name in top})) == 1 else level).update(top)
    of = f"of {several(len(places), 'setting')} (data, model)"
    first = f"above all others by the test {_counts(alone)}" if alone else "none above all others"
    if not level:
        return f"{of}, {first}"
    return f"{of}, {first}; elsewhere not to be told from the best {_counts(level)}"


def best_operators(ends: Ends) -> list[str]:
    """The operator of the highest mean, and all that the test does not put below it."""
    best = next(iter(by_mean(ends)))
    return [name for name in by_mean(ends) if not above(ends[best], ends[name])]


def _counts(counts: Counter[str]) -> str:
    """`a and b in 3, c in 1`."""
    by: dict[int, list[str]] = {}
    for name, number in counts.most_common():
        by.setdefault(number, []).append(SAID.get(name, name))
    return ", ".join(f"{listed(names)} in {number}" for number, names in by.items())


def _distinct(ends: Ends) -> set[tuple[float, ...]]:
    return {tuple(values) for values in ends.values()}


def _keeps_shape(operator: str) -> bool:
    return getattr(OPERATORS[OPERATORS.spec(operator).name], "on", "") == "weights"
