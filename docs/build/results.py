"""Write the pages of docs/results from the numbers that studies and benchmarks left there.

    python docs/build/results.py        or: make results

reads *.json and writes *.md beside them, the README's lines on merging, studies and speed, and the
lists of studies. Every number comes from a file, and so does the verdict: targets.json says what
was aimed at, paper_single.json what the paper printed. A study without a pack has no page.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from class_pages import abstention, growth, nonsense, removal
from intarsia.plots import svg
from merge_pages import alignment, compatibility, curve, curve_figure, merge, merge_in_short
from module_pages import defaults, quality
from pages import RESULTS, ROOT, Load, Result, filled
from speed_pages import filesize, inlay, kills, speed, studio, training_cpu, training_cuda

sys.path.append(str(ROOT / "benchmarks"))

from study_packs import read_studies
from study_pages import study_files, verdicts
from study_speed_page import study_speed
from study_summary import navigation, studies_in_short, studies_table, titles

README, INDEX, SITE = ROOT / "README.md", RESULTS / "index.md", ROOT / "mkdocs.yml"

# A page of this name is written by this function, which is given `load`.
PAGES: dict[str, Callable[[Load], str]] = {
    "training_cpu": training_cpu,
    "training_cuda": training_cuda,
    "quality": quality,
    "filesize": filesize,
    "kills": kills,
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
BLOCKS: dict[str, Callable[[Load], str]] = {"merge": merge_in_short, "speed": speed}


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
        README: filled(README, lines | {"studies": studies_in_short(studies, said, speed)}),
        INDEX: filled(INDEX, {"studies": studies_table(said, names)}),
        SITE: filled(SITE, {"studies": navigation(names)}, "      # {}", "\n"),
    }


def _if_there(path: Path) -> Result | None:
    return json.loads(path.read_text()) if path.exists() else None


def load(name: str) -> Result:
    result: Result = json.loads((RESULTS / f"{name}.json").read_text())
    return result


if __name__ == "__main__":
    main()
