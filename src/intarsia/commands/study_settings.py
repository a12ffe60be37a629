"""A study's options beside its cells' settings: which belong together, and what that tells."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.errors import StudyError

if TYPE_CHECKING:
    from intarsia.studies import Cell, Measured

NAMED = 12  # missing cells, or groups of them, that are named
ALWAYS = ("data", "model")  # named in a group although all cells may have the same
Settings = Mapping[str, Any]


def picked(
    measured: "Sequence[Measured]", given: Mapping[str, Any], known: Iterable[str]
) -> "list[Measured]":
    """The cells that have one of the values of each option given, of those that are known.

    Cells without the setting stay: the option does not concern them.
    """
    settings = [m.settings for m in measured]
    kept = list(measured)
    for option, value in given.items():
        name = _setting_of(option, settings)
        if name is None:
            able = [other for other in known if _setting_of(other, settings)]
            raise StudyError(
                f"option {option!r} cannot pick cells of a pack: these can: {', '.join(able)}"
            )
        wanted = [*(value if isinstance(value, list) else [value]), None]
        kept = [m for m in kept if m.settings.get(name) in wanted]
    return kept


def without_cell(
    options: Mapping[str, Any], cells: "Iterable[Cell] | Iterable[Measured]"
) -> list[str]:
    """A note for each option with values that no cell has, where options and settings compare."""
    found, settings = [], [cell.settings for cell in cells]
    for option, values in options.items():
        name = _setting_of(option, settings)
        if name is None or not isinstance(values, list):
            continue
        seen = [own.get(name) for own in settings]
        absent = [value for value in values if value not in seen]
        if 0 < len(absent) < len(values):  # if all were, the study may write them in another way
            found.append(f"note: no cell has {option}={','.join(map(str, absent))}")
    return found


def missing_lines(missing: "Sequence[Cell]", cells: "Sequence[Cell]") -> list[str]:
    """Each missing cell while they are few; else how many there are by their settings but the seed.

    Settings that all cells share tell nothing; of the others the last go while groups are many.
    """
    if len(missing) <= NAMED:
        return [f"missing: {cell}" for cell in missing]
    names = [
        name
        for name in dict.fromkeys(key for cell in cells for key in cell.settings)
        if name != "seed" and (values := _plain_values(name, [cell.settings for cell in cells]))
        if name in ALWAYS or len(values) > 1
    ]
    counts = Counter(_label(cell, names) for cell in missing)
    while len(counts) > NAMED and len(names) > 1:
        names.pop()
        counts = Counter(_label(cell, names) for cell in missing)
    lines = [f"missing: {label}: {count}" for label, count in list(counts.items())[:NAMED]]
    rest = sum(counts.values()) - sum(list(counts.values())[:NAMED])
    return [*lines, *([f"and {rest} more; --json names them all"] if rest else [])]


def dead(measured: "Sequence[Measured]") -> int:
    """In how many cells a group of modules has no hidden unit alive, as results tell by `live`."""
    groups = [[v for v in m.result.values() if isinstance(v, Mapping)] for m in measured]
    lives = [[group.get("live") or [] for group in own] for own in groups]
    return sum(any(0 in live and not any(live) for live in own) for own in lives)


def _setting_of(option: str, settings: Sequence[Settings]) -> str | None:
    """The setting that an option or its singular names, where its values are text or numbers."""
    names = (option, option.removesuffix("s"), option.removesuffix("ies") + "y")
    return next((name for name in names if _plain_values(name, settings)), None)


def _plain_values(name: str, settings: Sequence[Settings]) -> set[Any]:
    """The different values of a setting; none if one of them is longer than text or a number."""
    values = [own[name] for own in settings if own.get(name) is not None]
    return set(values) if all(isinstance(v, str | int | float) for v in values) else set()


def _label(cell: "Cell", names: Sequence[str]) -> str:
    own = [(name, cell.settings[name]) for name in names if cell.settings.get(name) is not None]
    parts = [v if isinstance(v, str) else f"{name}={v}" for name, v in own]
    return " ".join(parts) or cell.study
