"""The page on how fast the studio answers."""

from collections.abc import Callable

from pages import Result, page, table


def studio(load: Callable[[str], Result]) -> str:
    result, target = load("studio"), load("targets")["studio"]["seconds"]
    rows = [
        [
            row["operator"],
            f"{row['median']:.3f}",
            f"{row['worst']:.3f}",
            f"{row['within_limit']} of {row['of']}",
            f"{row['again']:.3f}",
            f"{row['first']:.2f}",
        ]
        for row in result["rows"]
    ]
    missed = [row["operator"] for row in result["rows"] if row["worst"] >= target]
    verdict = f"missed by {', '.join(missed)}" if missed else "met by every switch timed"
    return page(
        "The studio",
        [result],
        f"`intarsia studio` serves {result['modules']} modules ({result['model']}, "
        f"{result['data']}, all test samples) and is asked over HTTP as its page asks it. A switch "
        "is timed from the request to the last byte of the answer, which holds the confusion "
        "matrix, accuracy, entropy, and what every module says of one sample. The browser's "
        "drawing is not in it. Each switch is to a set of modules that was not asked for before.",
        table(
            f"operator|median s|slowest s|under {target:g} s|switched back, median s"
            "|first answer s",
            rows,
        ),
        f"The target of {target:g} s for a switch is {verdict}. An operator's first answer, for "
        "which it may have to look at samples, is told apart. The page was there after "
        f"{result['seconds_to_start']:.1f} s.",
    )
