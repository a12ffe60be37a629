"""Samples as a recipe names them: a data set, the part of it, and how many rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.data import Split, check_options, load_data, options_for, spaced
from intarsia.errors import DataError, RecipeError, nearest
from intarsia.modules import Module

SPLITS = ("train", "validation", "test")
KEYS = ("data", "split", "rows", "options")


def read_samples(given: Any) -> dict[str, Any] | None:
    """{data, split, rows, options}, from a name or from some of them; by default validation."""
    if given is None:
        return None
    named = {"data": given} if isinstance(given, str) else given
    if not isinstance(named, Mapping) or not isinstance(named.get("data"), str):
        raise RecipeError(
            f"samples is {given!r}: expected a data set, or {{data: mnist, split: validation, "
            "rows: 512}"
        )
    for key in named:
        if key not in KEYS:
            raise RecipeError(f"samples has no setting {key!r}: {nearest(str(key), KEYS)}")
    found = {"split": "validation", "rows": None, "options": {}, **named}
    if found["split"] not in SPLITS:
        raise RecipeError(f"samples: unknown split {found['split']!r}: expected one of {SPLITS}")
    if found["rows"] is not None and (type(found["rows"]) is not int or found["rows"] < 1):
        raise RecipeError(f"samples: rows is {found['rows']!r}: expected a number of at least 1")
    if not isinstance(found["options"], Mapping):
        raise RecipeError(f"samples: options is {found['options']!r}: expected a mapping")
    check_options(found["options"])
    return found


def load_samples(samples: Mapping[str, Any] | None, parts: Sequence[Module]) -> Split | None:
    """The samples with labels by name, -1 for a class that the modules do not know."""
    if samples is None:
        return None
    before = options_for(samples["data"], parts[0].provenance if parts else {})
    data = load_data(samples["data"], **{**before, **samples["options"]})
    split = getattr(data, samples["split"])
    if not len(split):
        raise DataError(f"{data.name} has no samples in its {samples['split']} part: name another")
    rows = spaced(len(split), samples["rows"] or len(split))
    return Split(split.x[rows], data.labels_in(parts[0].catalogue)[split.y[rows]])
