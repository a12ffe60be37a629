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
        f"Which kinds of network can be trained, pruned, joined and exported? {_counts(result)} "
        f"Two modules of each of {len(cells)} small networks are trained and put through every "
        "check. **yes** means that the result agreed with numbers computed by hand; *no* means "
        "that the operation was refused, with the reason below. There is no third outcome: a "
        "wrong number stops the script, and a test in the suite checks that the table is up to "
        "date. The [guide](../guide/foreign.md) explains what this means for [a network of your "
        "own](../guide/models.md#a-network-of-your-own), and what to do if something is refused.",
        table("check|what is compared", [[c, what] for c, what in result["checks"].items()]),
        table("|".join(["network", *columns]), rows),
        "## Reasons for refusals",
        "\n".join(f"- **{name}**: {_reasons(row)}" for name, row in cells.items() if _reasons(row)),
    )


def _counts(result: Result) -> str:
    """How many networks each check holds for."""
    cells = result["networks"].values()
    counts = (
        f"{column} {sum(row[column] == 'yes' for row in cells)}" for column in result["checks"]
    )
    return f"Networks that pass each check, of {len(cells)}: {', '.join(counts)}."


def _reasons(row: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for column, answer in row.items():
        if answer != "yes":
            by_reason.setdefault(answer, []).append(column)
    return "; ".join(
        f"{'all' if len(columns) == len(row) else ', '.join(columns)}: {why}"
        for why, columns in by_reason.items()
    ).replace("|", "\\|")
