"""The contract of a fresh head stands, word for word, wherever its numbers are shown."""

import json
import re
from pathlib import Path

import pytest

from intarsia.measure import FRESH_HEAD

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("page", ["guide/probe.md", "results/fresh_head.md"])
def test_pages_state_the_contract(page: str) -> None:
    words = " ".join((DOCS / page).read_text().split())
    for label, statement in FRESH_HEAD.labelled().items():
        assert f"- **{label}.** {statement}" in words


def test_results_carry_the_contract() -> None:
    result = json.loads((DOCS / "results" / "fresh_head.json").read_text())
    assert [p["contract"] for p in result["probes"].values()] == [FRESH_HEAD.to_json()] * 2


def test_the_reference_shows_it() -> None:
    assert re.search(r"members: \[FRESH_HEAD,", (DOCS / "reference" / "measure.md").read_text())
