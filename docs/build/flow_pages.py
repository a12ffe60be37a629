"""The page on the flow: targets and findings, from the study's archive."""

from collections.abc import Sequence
from typing import Any

import studies
from intarsia.studies import Findings
from intarsia.studies.wording import several
from pages import RESULTS, Load, page

NAME = "flow"


def flow(load: Load) -> str:
    """Targets first, then further findings, then every table."""
    known = studies.read_studies(RESULTS).get(NAME, [])
    parts: list[str] = []
    for variant in known:
        parts += [_origin(variant), *studies.aims_and_tables(variant)]
    return page(
        "Cumulants and their flow",
        [],
        "How cumulants pass through affine layers and activations, and whether small networks "
        "learn the central limit theorem as a flow; [the guide](../guide/flow.md) explains both. "
        "The paper (Ashworth, Liò, Caso, arXiv 2510.16591) prints equations and figures but no "
        "numbers to compare with ours.",
        *_in_short(known),
        *(parts or ["Nothing has been measured yet."]),
    )


def _in_short(variants: Sequence[studies.Variant]) -> list[str]:
    """The study's verdict in one line."""
    lines = [v.study.judge(Findings(v.measured, v.label)).line for v in variants]
    return [f"In short: {'; '.join(lines)}."] if lines else []


def _origin(variant: Any) -> str:
    """Where the numbers come from, and how long they took."""
    runs = variant.runs
    devices = ", ".join(dict.fromkeys(device for own in runs for device in own["devices"]))
    seconds = sum(own["measuring_seconds"] for own in runs)
    cells = len(variant.measured)
    return (
        f"[The study's page](study_{NAME}.md) has the command, the versions and the figures. Its "
        f"{several(cells, 'cell')}, training included, took {seconds:,.0f} s of elapsed time in "
        f"one process on {devices}, which was also doing other work."
    )
