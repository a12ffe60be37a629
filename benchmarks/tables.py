"""Write the pages of docs/results from the figures that the other benchmarks left there.

    python benchmarks/tables.py        or: make results

reads *.json and writes *.md beside them and the README's lines on merging and speed; then
docs/build/studies.py writes the pages on studies. Every number comes from a file, and so does the
verdict: targets.json says what was aimed at, paper_single.json what the paper printed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from alignment_page import alignment
from compatibility_page import compatibility
from curve_page import abstention, curve, curve_figure
from defaults_page import defaults, nonsense
from filesize_page import filesize
from growth_page import growth
from inlay_page import inlay
from merge_page import merge, merge_in_short
from pages import Result
from quality_page import quality
from removal_page import removal
from studio_page import studio
from training_page import speed, training_cpu, training_cuda

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
README = ROOT / "README.md"
sys.path.append(str(ROOT / "docs" / "build"))

import studies  # noqa: E402

Write = Callable[[Callable[[str], Result]], str]
# A page of this name is written by this function, which is given `load`.
PAGES: dict[str, Write] = {
    "training_cpu": training_cpu,
    "training_cuda": training_cuda,
    "quality": quality,
    "filesize": filesize,
    "merge": merge,
    "curve": curve,
    "removal": removal,
    "inlay": inlay,
    "compatibility": compatibility,
    "alignment": alignment,
    "abstention": abstention,
    "nonsense": nonsense,
    "defaults": defaults,
    "growth": growth,
    "studio": studio,
}
# The README's lines between <!-- name --> and <!-- end of name -->.
BLOCKS: dict[str, Write] = {"merge": merge_in_short, "speed": speed}


def main() -> None:
    for path, text in written().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
    studies.write_study_pages()


def written() -> dict[Path, str]:
    """Every file that is made here, and what it should hold."""
    pages = {RESULTS / f"{name}.md": write(load) for name, write in PAGES.items()}
    figure = {RESULTS / "curve.svg": curve_figure(load("curve"))}
    lines = {name: write(load) for name, write in BLOCKS.items()}
    return {**pages, **figure, README: _filled(README, lines)}


def _filled(path: Path, blocks: dict[str, str]) -> str:
    """The file with each block between its two marks."""
    text = path.read_text()
    for name, block in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n\n{block}\n\n{end}{after}"
    return text


def load(name: str) -> Result:
    result: Result = json.loads((RESULTS / f"{name}.json").read_text())
    return result


if __name__ == "__main__":
    main()
