"""The page on routers: modules chosen for each input, beside the sum of all logits."""

from typing import Any

from pages import Load, data_title, mean_sd, page, table


def routing(load: Load) -> str:
    result = load("routing")
    title = data_title(result["data"])
    samples, cells = result["samples"], result["cells"]
    routers = list(cells[0]["operators"])[1:]
    alone = sum(len(task) == 1 for task in result["ward"])
    return page(
        "Routers",
        [result],
        f"{result['tasks']} {result['model']} modules for the classes of {title}, "
        f"{samples['train']:,} samples to train and {samples['test']:,} to test, "
        "[routed](../guide/composing.md#routing) and by the sum of their logits. Tasks are random "
        "blocks of classes, other ones for each seed, or by Ward's linkage of the classes' mean "
        f"inputs, where {alone} of {len(result['ward'])} tasks have one class only. Centroids are "
        "those of at most 1,000 training samples. Modules have no common base, so that without "
        "`features` it is the first module's readout that tells inputs apart. Test accuracy, and "
        f"how far it is above the sum, seed by seed; mean ± standard deviation over "
        f"{result['seeds']} seeds.",
        *(_cell(cell) for cell in cells),
        "## In short",
        "Cells in which a router is above the sum of logits in every seed, and in which it is "
        f"below in every seed; in the others of the {len(cells)} seeds differ.",
        table("router|above|below", [_verdict(router, cells) for router in routers]),
    )


def _cell(cell: dict[str, Any]) -> str:
    rows = [
        [
            f"`{operator}`",
            mean_sd(found["accuracy"]),
            "" if place == 0 else mean_sd(found["above"]),
        ]
        for place, (operator, found) in enumerate(cell["operators"].items())
    ]
    head = f"## {cell['partition'].capitalize()} tasks, {cell['objective']}"
    return f"{head}\n\n{table('operator|accuracy|above the sum', rows)}"


def _verdict(router: str, cells: list[dict[str, Any]]) -> list[str]:
    """Where it is above in all seeds, and where below."""
    above, below = [], []
    for cell in cells:
        values = [*map(float, cell["operators"][router]["above"]["values"].split())]
        name = f"{cell['partition']} tasks, {cell['objective']}"
        if min(values) > 0:
            above.append(name)
        if max(values) < 0:
            below.append(name)
    return [f"`{router}`", "; ".join(above) or "none", "; ".join(below) or "none"]
