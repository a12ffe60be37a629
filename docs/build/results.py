"""Write the pages of docs/results from the numbers that studies and benchmarks left there.

    python docs/build/results.py        or: make results

reads *.json and writes *.md beside them and the README's table of main results; then
docs/build/studies.py writes the pages on studies. Every number comes from a file, and so does the
verdict: targets.json says what was aimed at, paper_single.json what the paper printed.
"""

import json
from collections.abc import Callable
from pathlib import Path

import graph_pages
import lens_pages
import studies
from apart_pages import apart
from armour_pages import armour
from cifar_pages import cifar
from class_pages import abstention, growth, nonsense, removal
from flow_pages import flow
from intarsia.plots import svg
from merge_pages import (
    alignment,
    compatibility,
    curve,
    curve_figure,
    merge,
    vit_barrier,
)
from module_pages import defaults, quality, yeast
from mutation_pages import mutation
from network_pages import networks
from overview_pages import measured, overview
from pages import README, RESULTS, ROOT, Load, Result, filled
from pattern_pages import pattern_fits, sweetspot
from plan_pages import imagenet
from probe_pages import fresh_head
from routing_pages import routing
from speed_pages import (
    conv_inlay,
    convolutions,
    filesize,
    inlay,
    kills,
    stream_merge,
    studio,
    training_cpu,
    training_cuda,
)
from text_pages import texts

# A page of this name is written by this function, which is given `load`.
PAGES: dict[str, Callable[[Load], str]] = {
    "overview": overview,
    "training_cpu": training_cpu,
    "training_cuda": training_cuda,
    "convolutions": convolutions,
    "quality": quality,
    "yeast": yeast,
    "filesize": filesize,
    "kills": kills,
    "armour": armour,
    "mutation": mutation,
    "merge": merge,
    "curve": curve,
    "removal": removal,
    "inlay": inlay,
    "conv_inlay": conv_inlay,
    "compatibility": compatibility,
    "fresh_head": fresh_head,
    "routing": routing,
    "alignment": alignment,
    "abstention": abstention,
    "nonsense": nonsense,
    "defaults": defaults,
    "growth": growth,
    "studio": studio,
    "texts": texts,
    "apart": apart,
    "cifar": cifar,
    "sweetspot": sweetspot,
    "pattern_fits": pattern_fits,
    "flow": flow,
    "graphs": graph_pages.graphs,
    "lens": lens_pages.lens,
    "networks": networks,
}
# These are written once their numbers are there.
LATER: dict[str, Callable[[Load], str]] = {
    "imagenet": imagenet,
    "stream_merge": stream_merge,
    "vit_barrier": vit_barrier,
}
# The README's lines between <!-- name --> and <!-- end of name -->.
BLOCKS: dict[str, Callable[[Load], str]] = {
    "measured": measured,
}


def main() -> None:
    for path, text in written().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
    studies.write_study_pages()


def written() -> dict[Path, str]:
    """Every file that is made here, and what it should hold."""
    there = {name: write for name, write in LATER.items() if (RESULTS / f"{name}.json").exists()}
    pages = {RESULTS / f"{name}.md": write(load) for name, write in (PAGES | there).items()}
    figure = {RESULTS / "curve.svg": svg(curve_figure(load("curve")))}
    drawn = graph_pages.figures(load) | lens_pages.figures(load)
    figure |= {RESULTS / f"{name}.svg": svg(own) for name, own in drawn.items()}
    lines = {name: write(load) for name, write in BLOCKS.items()}
    return {**pages, **figure, README: filled(README, lines)}


def load(name: str) -> Result:
    result: Result = json.loads((RESULTS / f"{name}.json").read_text())
    return result


if __name__ == "__main__":
    main()
