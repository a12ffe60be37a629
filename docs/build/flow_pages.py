"""The page on the flow: what was aimed at and what came out, from the study's archive."""

from collections.abc import Sequence
from typing import Any

import studies
from intarsia.studies import Claim, Findings
from pages import RESULTS, Load, met, page, table

NAME = "flow"


def flow(load: Load) -> str:
    """Aims first, then what the study says beside them, then every table."""
    known = studies.read_studies(RESULTS).get(NAME, [])
    parts: list[str] = []
    for variant in known:
        verdict = variant.study.judge(Findings(variant.measured, variant.label))
        parts += [_origin(variant), *_claims(verdict.claims)]
        parts += ["## Tables", *studies.tables_markdown(variant.study.tables(variant.measured))]
    return page(
        "Cumulants and their flow",
        [],
        "Cumulants through affine layers and activations, and the central limit theorem as a flow "
        "that small networks learn: [the guide](../guide/flow.md) says how. The paper (Ashworth, "
        "Liò, Caso, arXiv 2510.16591) prints equations and figures, and no numbers to stand beside "
        "ours.",
        *(parts or ["Nothing is measured yet."]),
    )


def _origin(variant: Any) -> str:
    """Where the numbers come from and what they took."""
    runs = variant.runs
    devices = ", ".join(dict.fromkeys(device for own in runs for device in own["devices"]))
    seconds = sum(own["measuring_seconds"] for own in runs)
    cells = len(variant.measured)
    return (
        f"[The study's page](study_{NAME}.md) has the command, the versions and figures. Its "
        f"{cells} cells, training included, took {seconds:,.0f} s by the clock in one process on "
        f"{devices}, with other work on the machine."
    )


def _claims(claims: Sequence[Claim]) -> list[str]:
    aims = [claim for claim in claims if "aim" in claim.evidence]
    rows = [[c.evidence["aim"], c.evidence["measured"], c.n, met(bool(c.holds))] for c in aims]
    others = [f"- {claim.text}" for claim in claims if claim not in aims]
    details = [f"- {point}" for claim in claims for point in claim.details]
    return [
        "## What was aimed at",
        table("aim|measured|n|verdict", rows),
        "## What came out beside it",
        "\n".join([*others, *details]),
    ]
