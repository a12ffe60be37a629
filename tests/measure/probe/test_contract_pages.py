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


def test_the_page_of_results_leads_to_all_figures() -> None:
    """Native, fresh, joint and recovered of every network, and the paper's, marked as of others."""
    text = (DOCS / "results" / "fresh_head.md").read_text()
    for study in ("fresh_head", "geometry", "readout_of_modules"):
        assert f"](study_{study}.md)" in text
        assert (DOCS / "results" / f"study_{study}.md").exists()
    head = r"\| +native head \| +fresh head \| +joint \| +recovered \|"
    assert len(re.findall(head, text)) >= 3
    assert "The paper's fresh heads, for other backbones" in text
    for network in ("efficientnet_lite0(96)", "resnet18(32)"):
        assert re.search(rf"{re.escape(network)} \| \d+ \| \d+ \| at least .*: (met|missed)", text)


def test_results_carry_the_contract() -> None:
    result = json.loads((DOCS / "results" / "fresh_head.json").read_text())
    assert [p["contract"] for p in result["probes"].values()] == [FRESH_HEAD.to_json()] * 2


def test_the_reference_shows_it() -> None:
    assert re.search(r"members: \[FRESH_HEAD,", (DOCS / "reference" / "measure.md").read_text())
