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
        "Is it better to choose modules for each input than to add the logits of all? "
        f"{result['tasks']} `{result['model']}` modules cover the classes of {title}, with "
        f"{samples['train']:,} training and {samples['test']:,} test samples; they are "
        "[routed](../guide/composing.md#routing), or joined by the sum of their logits. Tasks are "
        "random blocks of classes, drawn anew for each seed, or given by Ward's linkage of the "
        f"classes' mean inputs, where {alone} of {len(result['ward'])} tasks have a single class. "
        "Centroids are computed from at most 1,000 training samples. The modules have no common "
        "base, so without `features` inputs are compared in the readout of the first module.",
        "The table lists the settings in which a router is more accurate than the sum of logits in "
        "every seed, and those in which it is less accurate in every seed; in the rest of the "
        f"{len(cells)} settings the seeds disagree.",
        table(
            "router|more accurate|less accurate", [_verdict(router, cells) for router in routers]
        ),
        "Below: test accuracy, and its difference from the sum, seed by seed; mean ± standard "
        f"deviation over {result['seeds']} seeds.",
        *(_cell(cell) for cell in cells),
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
    return f"{head}\n\n{table('operator|test accuracy|difference from the sum', rows)}"


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
