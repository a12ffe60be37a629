"""The page on networks of all kinds: what is done with each, and what is refused and why."""

from collections.abc import Mapping

from pages import Load, Result, page, table


def networks(load: Load) -> str:
    result = load("networks")
    cells: Mapping[str, Mapping[str, str]] = result["networks"]
    columns = list(result["checks"])
    rows = [
        [name, *("yes" if row[column] == "yes" else "*no*" for column in columns)]
        for name, row in cells.items()
    ]
    return page(
        "Networks of all kinds",
        [result],
        f"Two modules of each of {len(cells)} small networks are trained and tried. **yes** means "
        "that the result was compared with numbers made by hand; *no* means that it was refused, "
        "with the reason below. There is no third kind: a wrong number stops the script, and a "
        "test of the suite holds the table to what is found today. What this means for "
        "[a network of your own](../guide/models.md#a-network-of-your-own), and what to do where "
        "something is refused, is in the [guide](../guide/foreign.md).",
        table("column|what is compared", [[c, what] for c, what in result["checks"].items()]),
        table("|".join(["network", *columns]), rows),
        f"{_counts(result)}",
        "## Reasons",
        "\n".join(f"- **{name}**: {_reasons(row)}" for name, row in cells.items() if _reasons(row)),
    )


def _counts(result: Result) -> str:
    """How many networks each check holds for."""
    cells = result["networks"].values()
    counts = (
        f"{column} {sum(row[column] == 'yes' for row in cells)}" for column in result["checks"]
    )
    return f"Of {len(cells)} networks: {', '.join(counts)}."


def _reasons(row: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for column, answer in row.items():
        if answer != "yes":
            by_reason.setdefault(answer, []).append(column)
    return "; ".join(
        f"{'all' if len(columns) == len(row) else ', '.join(columns)}: {why}"
        for why, columns in by_reason.items()
    ).replace("|", "\\|")
