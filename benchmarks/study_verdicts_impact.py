"""What the study of pruning's impact on pairs says, counted from its table."""

from collections.abc import Sequence
from functools import partial

from study_counting import Row, Verdict, capital, count, listed, points, rows_of, sentences
from study_dead import alike
from study_packs import Studies, Variant
from study_verdicts import not_counted


def impact(variants: Sequence[Variant], studies: Studies) -> Verdict:
    dead = alike(variants[0].measured)
    rows = [
        row
        for row in rows_of(variants[0].tables[0])
        if (row["model"], row["|R|"], "yes", row["data"]) not in dead
    ]
    settings = "settings (model, |R|, objective)"
    result, signs = {}, []
    for what in ("accuracy", "entropy"):
        known = [r for r in rows if r[f"change of {what}"].n]
        by = listed([f"{name} in {_rises(known, what, name)}" for name in _objectives(known)])
        result[capital(what)] = (
            f"rises in {_rises(known, what)} ({by}); by the test it rises in "
            f"{_surely(known, what, 1)} and falls in {_surely(known, what, -1)}."
        )
        printed = count(known, partial(_same_sign, what=what))
        if not printed.endswith(" of 0"):
            signs.append(f"{printed} for {what}")
    line = f"IMP raises accuracy in {_rises(rows, 'accuracy')} {settings}, entropy in "
    line += _rises(rows, "entropy")
    same = f"The change has the sign of the paper's in {listed(signs)}." if signs else ""
    return Verdict(
        line,
        sentences(f"{line}, of the sum of two modules.", not_counted(dead), same),
        points(result),
    )


def _objectives(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["objective"] for row in rows))


def _rises(rows: Sequence[Row], what: str, objective: str | None = None) -> str:
    some = [r for r in rows if objective in (None, r["objective"]) and r[f"change of {what}"].n]
    return count(some, lambda r: r[f"change of {what}"].mean > 0)


def _surely(rows: Sequence[Row], what: str, sign: int) -> int:
    return sum(
        r[f"p of {what}"] is not None
        and r[f"p of {what}"] < 0.05
        and sign * r[f"change of {what}"].mean > 0
        for r in rows
    )


def _same_sign(row: Row, what: str) -> bool | None:
    paper = row[f"paper's change of {what}"]
    if paper is None or paper.suspect or paper.mean == 0:
        return None
    return bool((row[f"change of {what}"].mean > 0) == (paper.mean > 0))
