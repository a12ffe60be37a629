"""The page on planted permutations."""

from collections.abc import Callable

from pages import Result, page, table

INTRO = """All hidden units of a network with random weights and random BatchNorm statistics are \
permuted, noise is added (as a share of each tensor's spread), and the result is aligned to the \
original. A permutation counts as recovered only if every unit of every hidden axis is. Axes are \
counted one by one in the column after it."""


def alignment(load: Callable[[str], Result]) -> str:
    result, target = load("alignment"), load("targets")["alignment"]
    rows = result["rows"]
    clean = [row for row in rows if row["noise"] == 0]
    good = all(row["recovered"] >= target["recovered"] for row in clean)
    worse = [row for row in rows if row["noise"] and row["recovered"] < row["planted"]]
    where = "; ".join(
        f"`{r['model']}` by {r['how']} at noise {r['noise']}: {r['recovered']} of {r['planted']} "
        f"({r['axes_recovered']} of {r['planted'] * r['axes']} axes)"
        for r in worse
    )
    lines = [
        [
            f"`{row['model']}`",
            "x".join(map(str, row["shape"])),
            row["how"],
            row["noise"],
            f"{row['recovered']} of {row['planted']}",
            f"{row['axes_recovered']} of {row['planted'] * row['axes']}",
            f"{row['seconds']:.3f}",
        ]
        for row in rows
    ]
    return page(
        "Alignment",
        [result],
        INTRO,
        table("model|inputs|by|noise|recovered|axes|s each", lines),
        f"Without noise the target of {target['recovered']} of {target['planted']} for every "
        f"model, by weights and by activations of {result['samples']} samples, is "
        f"{'met' if good else 'missed'}. "
        + (f"With noise some are not recovered: {where}." if worse else "Noise loses none."),
        "Planted permutations say that the matching works, not that networks trained apart have "
        "the same units: whether alignment helps a merge is a question for [the merge itself]"
        "(../guide/composing.md#alignment).",
    )
