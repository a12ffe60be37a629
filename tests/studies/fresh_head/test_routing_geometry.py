"""Study `geometry`: routers as compose makes them, on the base's features, and what is said."""

from typing import Any

import pytest

from intarsia.composition import compose
from intarsia.data import Split
from intarsia.errors import StudyError
from intarsia.studies import Findings, Measured, StudyContext, find_study
from intarsia.studies.base.expert_banks import expert_bank, expert_source
from intarsia.studies.fresh_head.printed_tables import printed_geometry
from intarsia.studies.fresh_head.readout_of_experts import WAYS
from intarsia.studies.fresh_head.routing_geometry import (
    BOTH,
    CENTROID,
    ENSEMBLE,
    ENTROPY,
    LABELS,
    composers,
    verdict,
)
from intarsia.studies.maxent.shared.baselines import right

STUDY = find_study("geometry")


def test_all_composers_answer_as_compose_makes_them(small: list[Measured], context: Any) -> None:
    """The router of a composition reads the base of its parts, and the same training samples."""
    planned = STUDY.plan(STUDY.options("small"), context)
    for cell, measured in list(zip(planned, small, strict=True))[:2]:
        source = expert_source(cell, context)
        assert source is not None
        data = source.data
        assert len(data.train) <= 1000  # more would be subsampled
        bank = expert_bank(cell.settings, context, source)
        for name, operator in composers(cell.settings).items():
            samples = Split(data.train.x, data.train.y) if "centroid" in operator else None
            merged = compose(bank, operator, samples=samples)
            assert measured.result[name] == pytest.approx(right(merged, data.test), abs=1e-5)
        assert measured.result[ENSEMBLE] == pytest.approx(
            right(compose(bank, "logits"), data.test), abs=1e-5
        )


def test_inputs_find_their_experts_by_the_features_of_the_base(small: list[Measured]) -> None:
    for cell in small:
        assert cell.result["routed"] > 1 / cell.settings["tasks"] + 0.1
        assert len(cell.result["sets"]) == cell.settings["tasks"]


def test_tables_and_figures(small: list[Measured]) -> None:
    ours, printed = STUDY.tables(small)
    assert len(ours.rows) == len(WAYS) * len(LABELS)
    assert "other backbones" in printed.title
    (figure,) = STUDY.figures(small).values()
    assert len(figure.axes) == 1
    rows = {tuple(row[:2]): row[2:] for row in printed_geometry().rows}
    ensemble, composer, gap, seeds = rows["ViT-B/16", "ward"]
    assert (round(gap.mean, 3), seeds) == (0.090, 5)
    assert composer.mean - ensemble.mean == pytest.approx(gap.mean, abs=2e-4)


def cells(gaps: dict[str, list[float]], entropy: float) -> list[Measured]:
    """One way, with what centroids add to an ensemble of 0.5 by partition and seed."""
    made = []
    for partition, values in gaps.items():
        for seed, gap in enumerate(values):
            settings = {"data": "d", "model": "m", "way": "w", "tasks": 3, "top": 2}
            settings |= {"seed": seed, "partition": partition, "temperature": 1.0}
            result = dict.fromkeys(LABELS, 0.5)
            result |= {CENTROID: 0.5 + gap, ENTROPY: 0.5 + gap + entropy + seed / 1000, BOTH: 0.6}
            made.append(Measured(settings, {**result, "routed": 0.7}))
    return made


def test_the_verdict_is_what_the_numbers_say() -> None:
    above, below = [0.09, 0.1, 0.095], [-0.06, -0.05, -0.055]
    paper, geometry, entropy = verdict(
        Findings(cells({"ward": above, "random": below}, 0.1))
    ).claims
    assert paper.holds is True
    assert paper.counted == "1 of 1"
    assert geometry.holds is True
    assert "ward tasks +0.095, higher" in geometry.text
    assert "random tasks -0.055, lower" in geometry.text
    assert geometry.n == 3
    assert entropy.holds is True
    both = cells({"ward": above, "random": above}, -0.1)
    paper, geometry, entropy = verdict(Findings(both)).claims
    assert paper.holds is False  # centroids help on random tasks, too
    assert geometry.holds is False
    assert entropy.holds is False
    unsure = cells({"ward": [0.1, -0.1, 0.0], "random": below}, 0.1)
    paper, geometry, _ = verdict(Findings(unsure)).claims
    assert paper.holds is False
    assert geometry.holds is False
    assert "not significant" in geometry.text
    noisy = [0.5, -0.3, 0.19]  # above in the mean, and not shown to be
    _, geometry, _ = verdict(Findings(cells({"ward": above, "random": noisy}, 0.1))).claims
    assert geometry.holds is False
    geometry, _ = verdict(Findings(cells({"ward": above}, 0.1))).claims
    assert geometry.holds is None  # the claim is of both partitions
    geometry, entropy = verdict(Findings(cells({"ward": [0.1], "random": [0.1]}, 0.1))).claims
    assert geometry.holds is None
    assert entropy.holds is None
    assert "too few to test" in geometry.text
    assert verdict(Findings([])).line == "nothing is routed yet"


def test_what_cannot_be_is_named(context: StudyContext) -> None:
    for key, value in (("top", 0), ("temperature", 0.0), ("partitions", ["randperm(x)"])):
        with pytest.raises(StudyError, match=f"option '{key}' "):
            STUDY.plan(STUDY.options("small", **{key: value}), context)
