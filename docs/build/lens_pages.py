"""The page on the lens: what was aimed at and what came out, from the study's archive."""

from collections.abc import Sequence

import studies
from intarsia.studies import Claim, Findings
from lens_modules_pages import lens_modules
from pages import RESULTS, Load, met, page, table

NAME = "lens"


def lens(load: Load) -> str:
    """Aims first, then what the study says beside them, then every table."""
    parts: list[str] = []
    for variant in studies.read_studies(RESULTS).get(NAME, []):
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        parts += _claims(verdict.claims)
        parts += ["## Tables", *studies.tables_markdown(variant.study.tables(variant.measured))]
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


def _claims(claims: Sequence[Claim]) -> list[str]:
    aims = [claim for claim in claims if "aim" in claim.evidence]
    rows = [[c.evidence["aim"], c.evidence["measured"], c.n, met(bool(c.holds))] for c in aims]
    others = [f"- {claim.text}" for claim in claims if claim not in aims]
    return [
        "## What was aimed at",
        table("aim|measured|n|verdict", rows),
        "## What came out beside it",
        "\n".join(others),
    ]
