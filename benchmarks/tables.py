"""Write the pages of docs/results from the figures that the other benchmarks left there.

    python benchmarks/tables.py        or: make results

reads *.json and writes *.md beside them, the README's lines on merging, studies and speed, and the
lists of studies. Every figure comes from a file, and so does the verdict: targets.json says what
was aimed at, paper_single.json what the paper printed. A study without a pack has no page.
"""

import json
from collections.abc import Callable
from pathlib import Path

from alignment_page import alignment
from compatibility_page import compatibility
from curve_page import abstention, curve, curve_figure
from defaults_page import defaults, nonsense
from filesize_page import filesize
from growth_page import growth
from inlay_page import inlay
from intarsia.plots import svg
from merge_page import merge, merge_in_short
from pages import Result
from quality_page import quality
from removal_page import removal
from studio_page import studio
from study_packs import read_studies
from study_pages import study_files, verdicts
from study_speed_page import study_speed
from study_summary import navigation, studies_in_short, studies_table, titles
from training_page import speed, training_cpu, training_cuda

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
README, INDEX, SITE = ROOT / "README.md", RESULTS / "index.md", ROOT / "mkdocs.yml"

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


def written(results: Path = RESULTS) -> dict[Path, str]:
    """Every file that is made here, and what it should hold; studies are read from `results`."""
    pages = {RESULTS / f"{name}.md": write(load) for name, write in PAGES.items()}
    figure = {RESULTS / "curve.svg": svg(curve_figure(load("curve")))}
    studies = read_studies(results)
    said, names = verdicts(studies), titles(studies)
    pages |= study_files(studies, said, results)
    speed, kills = (_if_there(results / f"study_{name}.json") for name in ("speed", "kills"))
    if speed or kills:
        pages[results / "study_speed.md"] = study_speed(speed, kills, load("targets"))
        names["study_speed"] = "How long, and how safe"
    lines = {name: write(load) for name, write in BLOCKS.items()}
    return {
        **pages,
        **figure,
        README: _filled(README, lines | {"studies": studies_in_short(studies, said, speed)}),
        INDEX: _filled(INDEX, {"studies": studies_table(said, names)}),
        SITE: _filled(SITE, {"studies": navigation(names)}, "      # {}", "\n"),
    }


def _filled(
    path: Path, blocks: dict[str, str], mark: str = "<!-- {} -->", gap: str = "\n\n"
) -> str:
    """The file with each block between its two marks."""
    text = path.read_text()
    for name, block in blocks.items():
        begin, end = mark.format(name), mark.format(f"end of {name}")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}{gap}{block}{gap if block else ''}{end}{after}"
    return text


def _if_there(path: Path) -> Result | None:
    return json.loads(path.read_text()) if path.exists() else None


def load(name: str) -> Result:
    result: Result = json.loads((RESULTS / f"{name}.json").read_text())
    return result


if __name__ == "__main__":
    main()
