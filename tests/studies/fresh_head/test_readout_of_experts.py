"""Study `fresh_head`: merged experts probed, references beside them, and what is said of both."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import intarsia as ia
from intarsia.composition import compose
from intarsia.errors import StudyError
from intarsia.measure import FRESH_HEAD
from intarsia.studies import Findings, Measured, Paper, Store, StudyContext, find_study
from intarsia.studies.base.expert_banks import base_network, expert_bank, expert_source
from intarsia.studies.base.expert_merges import (
    ARITHMETIC,
    AVERAGED,
    RECOMPUTED,
    TIES,
)
from intarsia.studies.base.experts import JOINT
from intarsia.studies.fresh_head.printed_tables import printed_fresh_heads
from intarsia.studies.fresh_head.readout_of_experts import (
    BASE,
    WAYS,
    recoveries,
    tables_in_short,
    verdict,
)
from intarsia.studies.fresh_head.readout_of_modules import FRESH, NATIVE

STUDY = find_study("fresh_head")


def test_the_small_scale_is_measured_whole(small: list[Measured]) -> None:
    assert [cell.settings["way"] for cell in small] == [JOINT, BASE, *WAYS] * 2
    for cell in small:
        assert cell.result["contract"] == FRESH_HEAD.to_json()
        if cell.settings["way"] == JOINT:
            assert cell.result[NATIVE] > 0.8
            assert cell.result[FRESH] > 0.8
        elif cell.settings["way"] == BASE:
            assert NATIVE not in cell.result
            assert 0.3 < cell.result[FRESH] < 1
        else:
            assert RECOMPUTED not in cell.result  # an MLP has no BatchNorm
            for operator in (ARITHMETIC, TIES):
                own = cell.result[AVERAGED][operator]
                assert own["chosen"].startswith(operator.replace(" ", "_"))
                assert 0 < own[FRESH] <= 1


def test_numbers_are_those_of_the_public_probe(small: list[Measured], context: Any) -> None:
    """`ia.fresh_head` of what `compose` makes of the experts, and of the base, says the same."""
    planned = STUDY.plan(STUDY.options("small"), context)
    for cell, measured in list(zip(planned, small, strict=True))[1:4]:
        source = expert_source(cell, context)
        assert source is not None
        how = {**cell.settings["head"], "seeds": [cell.settings["seed"]], "device": "cpu"}
        if cell.settings["way"] == BASE:
            network = base_network(source, context.device)
            probe = ia.fresh_head(network, source.data, **how)
            assert measured.result[FRESH] == pytest.approx(probe.fresh.mean, abs=1e-5)
            continue
        bank = expert_bank(cell.settings, context, source)
        for own in measured.result[AVERAGED].values():
            probe = ia.fresh_head(compose(bank, own["chosen"]), source.data, **how)
            assert own[NATIVE] == pytest.approx(probe.native.mean, abs=1e-5)
            assert own[FRESH] == pytest.approx(probe.fresh.mean, abs=0.015)  # heads in one loop


def test_tables_have_the_contract_and_the_papers_numbers(small: list[Measured]) -> None:
    ours, printed = STUDY.tables(small)
    assert len(ours.rows) == 2 * len(WAYS) + 2
    for statement in FRESH_HEAD.labelled().values():
        assert any(statement in note for note in ours.notes)
        assert statement in ours.markdown()
        assert ours.csv().count(statement) == len(ours.rows)
    assert "other backbones" in printed.title
    assert any("other backbones" in note for note in printed.notes)
    (figure,) = STUDY.figures(small).values()
    assert len(figure.axes) == 1
    assert not STUDY.tables([])


def kept_at(epoch: int, made: Measured) -> Measured:
    """A cell whose heads were trained for 10 epochs, of which this one was kept."""
    settings = {**made.settings, "head": {"epochs": 10}}
    if made.settings["way"] in (JOINT, BASE):
        return Measured(settings, {**made.result, "epoch": epoch})
    result = {
        norms: {operator: {**own, "epoch": epoch} for operator, own in by_operator.items()}
        for norms, by_operator in made.result.items()
    }
    return Measured(settings, result)


def test_heads_that_ended_early_are_counted_below_their_table() -> None:
    """Those of the partition, and of the joint network and the base, which all tables show."""
    late = [kept_at(10, made) for made in example()]
    random = [
        Measured({**made.settings, "partition": "random"}, made.result)
        for made in (kept_at(9, made) for made in example())
        if made.settings["way"] not in (JOINT, BASE)
    ]
    notes = [
        [note for note in table.notes if "the last epoch was the best" in note]
        for table in STUDY.tables([*late, *random])
    ]
    assert [len(own) for own in notes] == [1, 1, 0]
    assert notes[0][0].startswith("for 18 of 18 heads")
    assert notes[1][0].startswith("for 6 of 18 heads")


def test_a_short_table_has_every_merge_once() -> None:
    """With the statistics that figures show, and the numbers of the study's own tables."""
    made = [cell for cell in example() if RECOMPUTED in cell.result]
    random = [Measured({**c.settings, "partition": "random"}, c.result) for c in made]
    (short,) = tables_in_short([*example(), *random])
    assert [row[:2] for row in short.rows] == [
        [partition, way] for partition in ("ward", "random") for way in (WAYS[0], WAYS[2])
    ]
    ward, *_ = STUDY.tables(example())
    recomputed = [row for row in ward.rows if RECOMPUTED in row]
    for ours, theirs in zip(short.rows[:2], recomputed, strict=True):
        assert [str(entry) for entry in ours[3:5]] == [str(entry) for entry in theirs[3:5]]
        assert str(ours[-1]) == str(theirs[-1])
    assert not tables_in_short([])


def test_what_the_paper_printed() -> None:
    rows = {tuple(row[:3]): row[3:] for row in printed_fresh_heads().rows}
    assert len(rows) == 12
    native, fresh, joint, recovered, seeds = rows["ViT-B/16", "ward", "TA"]
    assert isinstance(native, Paper)
    assert [round(n.mean, 3) for n in (native, fresh, joint)] == [0.203, 0.878, 0.885]
    assert recovered.mean == pytest.approx(
        fmean([0.9824, 0.9935, 0.9925, 0.9831, 0.9934]), abs=1e-4
    )
    assert seeds == 5
    assert rows["ResNet-50", "random-200", "TIES"][-1] == 3


def cell(way: str, seed: int, native: float, fresh: float, **more: Any) -> Measured:
    settings = {"data": "d", "model": "m", "partition": "ward", "way": way, "seed": seed, **more}
    if way in (JOINT, BASE):
        return Measured(
            settings, {NATIVE: native, FRESH: fresh} if way == JOINT else {FRESH: fresh}
        )
    own = {"chosen": "", "validation": 0.0, NATIVE: native, FRESH: fresh}
    return Measured(settings, {RECOMPUTED: {ARITHMETIC: own}, AVERAGED: {ARITHMETIC: own}})


def example(last: float = 0.72) -> list[Measured]:
    usual, me = WAYS[0], WAYS[2]
    cells = []
    for seed, (native, fresh) in enumerate([(0.2, 0.70), (0.22, 0.71), (0.21, last)]):
        cells += [cell(JOINT, seed, 0.8, 0.81), cell(BASE, seed, 0.0, 0.65)]
        cells += [cell(usual, seed, native, fresh), cell(me, seed, native + 0.3, fresh + 0.02)]
    return cells


def test_recovered_fractions_are_paired_with_the_joint_network_of_the_seed() -> None:
    found = recoveries(example())
    assert len(found) == 4
    own = found["ward", WAYS[0], ARITHMETIC, AVERAGED]
    assert own.recovered == pytest.approx([0.5 / 0.6, 0.49 / 0.58, 0.51 / 0.59])
    assert own.gaps == pytest.approx({0: 0.5, 1: 0.49, 2: 0.51})
    assert not recoveries([c for c in example() if c.settings["way"] in (JOINT, BASE)])


def test_the_verdict_is_what_the_numbers_say() -> None:
    every, tested, smaller, base = verdict(Findings(example())).claims
    assert every.holds is True
    assert every.counted == "12 of 12"
    assert tested.holds is True
    assert tested.counted == "4 of 4"
    assert len(tested.details) == 4
    assert "averaged statistics" in tested.details[0] + tested.details[1]
    assert smaller.holds is True
    assert "is 0.220, significantly less" in smaller.text
    assert base.holds is True
    every, tested, _, base = verdict(Findings(example(last=0.1))).claims
    assert every.holds is False
    assert every.counted == "8 of 12"
    assert tested.holds is False
    assert base.holds is False
    (one, too_few, *_) = verdict(Findings(example()[:4])).claims
    assert one.counted == "4 of 4"
    assert too_few.holds is None
    assert verdict(Findings([])).line == "no merge is probed yet"


def test_banks_that_diverged_are_named(small: list[Measured]) -> None:
    lost = Measured(small[-1].settings, {"diverged": ["0+1"]})
    assert verdict(Findings([lost])).failed
    assert not STUDY.tables([lost])


def test_what_is_unknown_is_named(tmp_path: Path) -> None:
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    wrong = {"ways": ["mse"], "partitions": ["even"], "head": {"epoch": 3}}
    for key, value in wrong.items():
        with pytest.raises(StudyError, match=f"option '{key}' has"):
            STUDY.plan(STUDY.options("small", **{key: value}), context)
