"""The page on what an inlay costs beside the dense network."""

from collections.abc import Callable, Iterator

from pages import Result, page, table

INTRO = """The inlay of all modules of a bank, compacted, written by `Module.save` and run as \
`sparse` makes it. Beside it: the unpruned network of the modules' own shape (dense), the inlay \
run with dense layers, and the modules joined by `logits`, each with its own network. The ways \
take turns, and times are medians over the repetitions in microseconds a call."""


def inlay(load: Callable[[str], Result]) -> str:
    result, target = load("inlay"), load("targets")["inlay"]
    parts = [part for row in result["rows"] for part in _model(row, target)]
    return page("What an inlay costs", [result], INTRO, *parts)


def _model(row: Result, target: Result) -> Iterator[str]:
    yield f"## {row['model'].replace('[', '(').replace(']', ')')}"
    units = ", ".join(f"{axis} {count}" for axis, count in row["widths"].items())
    yield (
        f"{row['modules']} modules of density {row['density_of_modules']:.2%}; hidden units of the "
        f"inlay: {units}. Its logits differ from the sum of the modules' by at most "
        f"{row['off_the_logit_sum']:.1g} of the largest."
    )
    files = row["files"]
    yield table(
        "network|bytes on disk|nonzero",
        [[name, f"{own['bytes']:,}", f"{own['nonzero']:,}"] for name, own in files.items()],
    )
    ways = list(row["latency"][0]["median_us"])
    yield table(
        f"threads|batch|repetitions|{'|'.join(ways)}|dense/inlay",
        [
            [
                own["threads"],
                own["batch"],
                own["repetitions"],
                *(f"{own['median_us'][way]:,.0f}" for way in ways),
                f"{own['dense/inlay']:.2f}",
            ]
            for own in row["latency"]
        ],
    )
    yield _in_words(row, target)


def _in_words(row: Result, target: Result) -> str:
    smaller = row["bytes dense/inlay"]
    single = [own["dense/inlay"] for own in row["latency"] if own["batch"] == 1]
    many = [own for own in row["latency"] if own["batch"] != 1]
    met = smaller >= target["smaller"]
    fast = min(single) >= target["batch 1"]
    large = ", ".join(
        f"{1 / own['dense/inlay']:.2f} times the dense network's time on {own['threads']} "
        f"thread{'s' if own['threads'] > 1 else ''}"
        for own in many
    )
    return (
        f"The inlay is {smaller:.1f} times smaller on disk; the target of {target['smaller']:g} is "
        f"{'met' if met else 'missed'}. At batch 1 the dense network takes {min(single):.2f} to "
        f"{max(single):.2f} times as long; the target that the inlay is not slower is "
        f"{'met' if fast else 'missed'}. At batch {many[0]['batch']} the inlay takes {large}."
    )
