"""The page on the flow: what was aimed at and what came out, from the study's archive."""

from typing import Any

import studies
from pages import RESULTS, Load, page

NAME = "flow"


def flow(load: Load) -> str:
    """Aims first, then what the study says beside them, then every table."""
    known = studies.read_studies(RESULTS).get(NAME, [])
    parts: list[str] = []
    for variant in known:
        parts += [_origin(variant), *studies.aims_and_tables(variant)]
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
