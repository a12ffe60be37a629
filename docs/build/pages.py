"""What every page of results has: a title, where its numbers come from, tables."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
Result = dict[str, Any]
Load = Callable[[str], Result]  # from the name of a JSON file to what it holds
MARK = "<!-- {} -->"  # what a file has before and after a block that is written here
DATA_TITLES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def data_title(name: str) -> str:
    """A data set as pages call it."""
    return DATA_TITLES.get(name, name)


def page(title: str, results: Sequence[Result], *parts: str) -> str:
    """A title, where the numbers come from, then the parts."""
    made = "<!-- Made by docs/build/results.py from the JSON files beside it; do not edit. -->"
    return "\n\n".join([f"# {title}", made, *(origin(r) for r in results), *parts]) + "\n"


def origin(result: Result) -> str:
    """The date, the machine, the versions and the command of a result."""
    machine = result.get("machine") or result.get("device")
    versions = [f"{name} {number}" for name, number in result["versions"].items()]
    known = ", ".join([result["date"], *([machine] if machine else []), *versions])
    return f"{known}:\n\n    {command(result)}"


def command(result: Result) -> str:
    """The recorded command with the place where its script lies today.

    Results from before benchmarks had rooms name `benchmarks/merge.py` for what is
    `benchmarks/experiments/merge.py` now.
    """
    return re.sub(r"\bbenchmarks/(\w+\.py)", _place, result["command"])


def _place(old: re.Match[str]) -> str:
    scripts = list(ROOT.glob(f"benchmarks/*/{old[1]}"))
    return str(scripts[0].relative_to(ROOT)) if scripts else old[0]


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Markdown of a table; the cells of its head are separated by |."""
    columns = head.split("|")
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def filled(path: Path, blocks: Mapping[str, str], mark: str = MARK, gap: str = "\n\n") -> str:
    """The text of a file with each block between its two marks."""
    text = path.read_text()
    for name, block in blocks.items():
        begin, end = mark.format(name), mark.format(f"end of {name}")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}{gap}{block}{gap if block else ''}{end}{after}"
    return text


def mean_sd(value: Mapping[str, Any], digits: int = 4) -> str:
    """Mean and standard deviation; the mean alone where only one value is listed."""
    mean = f"{value['mean']:.{digits}f}"
    alone = "values" in value and len(value["values"].split()) == 1
    return mean if alone else f"{mean} ± {value['sd']:.{digits}f}"


def mean_sd_of(values: Sequence[float], digits: int = 4) -> str:
    """Mean and standard deviation of these; the value itself where it is the only one."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def met(holds: bool) -> str:
    """The word for a target that is met or not."""
    return "met" if holds else "missed"
