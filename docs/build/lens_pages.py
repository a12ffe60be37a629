"""The page on the lens: what was aimed at and what came out, from the study's archive."""

import studies
from lens_modules_pages import lens_modules
from pages import RESULTS, Load, page

NAME = "lens"


def lens(load: Load) -> str:
    """Aims first, then what the study says beside them, then every table."""
    parts: list[str] = []
    for variant in studies.read_studies(RESULTS).get(NAME, []):
        parts += studies.aims_and_tables(variant)
    return page(
        "Entropy through depth",
        [],
        "What entropy profiles of language models tell apart: [the guide](../guide/lens.md) says "
        "how they are made, [the study's page](study_lens.md) has the command and figures. The "
        "paper (Caso, Ali, Irwin, Liò, arXiv 2502.16570) asks larger models; where its "
        "questions are ours its numbers stand in the same table.",
        *(parts or ["Nothing is measured yet."]),
        lens_modules(load),
        "## Not measured yet",
        "Task, format and correctness on a larger model, family and size, and what a profile costs "
        "on a GPU.",
    )
