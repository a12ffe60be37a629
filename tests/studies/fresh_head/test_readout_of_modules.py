"""Study `readout_of_modules`: its cells, its numbers against plain probes, its verdict by hand."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from scipy import stats

import intarsia as ia
from intarsia.errors import StudyError
from intarsia.measure.probe import FRESH_HEAD
from intarsia.studies import Cell, Measured, Store, StudyContext, find_study, run
from intarsia.studies.fresh_head.readout_of_modules import (
    ALIGNED,
    ALONE,
    JOINT,
    LABELS,
    LOGITS,
    MEAN,
    SUM,
    TERRITORY,
    TIES,
    UNTRAINED,
    Probed,
    probed_network,
    probed_ways,
)
from intarsia.studies.options import check_head, run_command
from intarsia.studies.verdict import Findings

STUDY = find_study("readout_of_modules")
CPU = torch.device("cpu")
FOUR = {"data_options": {"classes": ["0", "1", "2", "3"]}, "seeds": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("readout") / "store")


@pytest.fixture(scope="module")
def cells(store: Store, threads: Any) -> list[Measured]:
    """The small scale with four classes and one seed."""
    with threads(1):
        return run(STUDY, STUDY.options("small", **FOUR), store, context=StudyContext(store, "cpu"))


def planned(store: Store, **given: Any) -> tuple[dict[str, Cell], StudyContext]:
    """Cells by their way, and the context that they are measured in."""
    context = StudyContext(store, "cpu")
    made = STUDY.plan(STUDY.options("small", **{**FOUR, **given}), context)
    return {cell.settings["way"]: cell for cell in made}, context.of_cell(made[0])


def test_every_way_is_measured(cells: list[Measured]) -> None:
    assert {cell.settings["way"] for cell in cells} == set(LABELS)
    for cell in cells:
        if cell.settings["way"] == LOGITS:
            assert set(cell.result) == {"native", "joint"}
            assert cell.result["native"] > 0.8
        else:
            assert len(cell.result["fresh"]) == 2
            assert cell.result["contract"] == FRESH_HEAD.to_json()
    ways = probed_ways(cells)
    assert list(ways) == list(LABELS)
    assert ways[JOINT].native == ways[JOINT].joint
    assert ways[MEAN].native == ways[SUM].native  # a network without biases
    assert ways[SUM].gaps[0] > 0


@pytest.mark.parametrize("way", [SUM, ALIGNED, TERRITORY])
def test_a_cell_is_the_probe_of_the_merge(
    way: str, cells: list[Measured], store: Store, one_thread: None
) -> None:
    plans, context = planned(store)
    cell, data = plans[way], context.data("digits")
    joint = context.bank(cell.banks["joint"])[0]
    align = "weights" if way == ALIGNED else None
    merged = ia.compose(context.bank(cell.banks["modules"]), "sum", align=align)
    probe = ia.fresh_head(merged, data, joint=joint, seeds=[0, 1], **cell.settings["head"])
    own = Probed.of([c for c in cells if c.settings["way"] == way])
    assert own.native[0] == pytest.approx(probe.native.mean, abs=0.01)
    assert own.fresh[0] == pytest.approx(probe.fresh.mean, abs=0.01)
    assert probe.recovered is not None
    assert own.recovered == pytest.approx([probe.recovered.mean], abs=0.03)


def test_heads_of_other_seeds_are_others(store: Store) -> None:
    """Two cells of one network would otherwise share the luck of their heads."""
    plans, context = planned(store)
    cell = plans[UNTRAINED]
    moved = Cell(cell.study, {**cell.settings, "seed": 1}, cell.banks)
    first, second = (STUDY.measure(one, context) for one in (cell, moved))
    assert first["native"] == second["native"]
    assert first["fresh"] != second["fresh"]


def test_settings_of_ties_are_chosen_on_validation_samples(store: Store) -> None:
    densities = [0.001, 1.0]  # next to nothing, and all
    plans, context = planned(store, densities=densities, ways=[TIES])
    cell = plans[TIES]
    bank, joint = (context.bank(cell.banks[role]) for role in ("modules", "joint"))
    _, chosen = probed_network(cell, bank, joint[0], context.data("digits"), context)
    assert chosen == "ties(density=1.0, scale=1.0)"


def test_statistics_of_batchnorm_are_recomputed(tmp_path: Path) -> None:
    data = ia.load_data("digits", classes=["0", "1", "2", "3"])
    how = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "epochs": 1, "progress": False}
    bank = ia.train(data, model="vgg11(4)", batch=64, device="cpu", **how)
    cell = Cell(STUDY.name, {"way": SUM, "seed": 0}, {})
    context = StudyContext(Store(tmp_path / "store"), "cpu")
    network, chosen = probed_network(cell, bank, bank[0], data, context)
    recomputed = ia.compose(bank, "sum", samples=data).networks[0].state_dict()
    averaged = ia.compose(bank, "sum", recalibrate=False).networks[0].state_dict()
    names = [name for name in recomputed if name.endswith("running_mean")]
    assert names
    assert not chosen
    for name in names:
        torch.testing.assert_close(network.state_dict()[name], recomputed[name])
    assert any(not torch.allclose(averaged[name], recomputed[name]) for name in names)
    plan = context.plan("digits", "vgg11(4)", None, 0)
    cell = Cell(STUDY.name, {"way": UNTRAINED, "seed": 0}, {"modules": plan})
    origin, _ = probed_network(cell, bank, bank[0], data, context)
    assert all(origin.state_dict()[name].any() for name in names)  # they begin at 0


def test_territories_need_a_unit_for_each_module(store: Store) -> None:
    assert TERRITORY in planned(store, models="mlp(4)")[0]
    few = planned(store, models="mlp(3)")[0]
    assert TERRITORY not in few
    assert SUM in few


def test_all_networks_train_for_as_many_epochs(store: Store) -> None:
    plans, _ = planned(store, recipe={"epochs": 2, "pruning_epochs": 3, "sparsity": 0.9})
    modules = plans[SUM].banks["modules"]
    assert modules.epochs == 3 * (modules.recipe.rounds or 0) + 2
    assert plans[TERRITORY].banks["modules"].epochs == modules.epochs
    assert plans[SUM].banks["joint"].epochs == modules.epochs
    assert plans[SUM].banks["joint"].modules == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ways": ["sums"]}, "'sum'"),
        ({"head": {"rate": 0.1}}, "option 'head' has 'rate'"),
        ({"head": {"epochs": 0}}, "option 'head': epochs is 0"),
        ({"heads": 0}, "option 'heads' is 0"),
        ({"densities": []}, "option 'densities' is empty"),
    ],
)
def test_options_are_checked(given: dict[str, Any], words: str, store: Store) -> None:
    with pytest.raises(StudyError, match=words):
        planned(store, **given)


def test_what_is_left_out_of_the_head_is_as_every_study_has_it() -> None:
    """Also where `fresh_head` has another default: epochs without a number."""
    full = {"epochs": 10, "learning_rate": 0.01, "weight_decay": 1e-4, "batch": 64}
    assert check_head({"learning_rate": 0.01}) == full
    assert check_head({**full, "epochs": None}) == {**full, "epochs": None}


def test_cifar10_is_a_scale_of_its_own() -> None:
    options = STUDY.options("cifar10")
    assert options["data"] == ["cifar10"]
    assert options["recipe"]["sparsity"] == 0
    assert run_command(STUDY, options) == "intarsia study run readout_of_modules --scale cifar10"


def test_the_contract_stands_under_every_table(cells: list[Measured]) -> None:
    (table,) = STUDY.tables(cells)
    assert [row[0] for row in table.rows] == list(LABELS.values())
    texts = [table.markdown(), str(table), str(table.to_json()), table.latex(), table.csv()]
    for text in texts:
        for statement in FRESH_HEAD.labelled().values():
            assert " ".join(statement.split()) in " ".join(text.split())


def test_heads_that_ended_early_are_counted() -> None:
    cells = [
        Measured({**cell.settings, "head": {"epochs": 4}}, {**cell.result, "epochs": [3, 4]})
        for cell in made(SUM, NATIVE, HEADS)
    ]
    notes = " ".join(STUDY.tables(cells)[0].notes)
    assert "for 3 of 6 heads, the last epoch was the best" in notes
    assert "the last epoch" not in " ".join(STUDY.tables(made(SUM, NATIVE, HEADS))[0].notes)


def test_figures_have_native_and_fresh(cells: list[Measured]) -> None:
    (figure,) = STUDY.figures(cells).values()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(LABELS.values())
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert ticks == ["native", "fresh"]
    assert STUDY.figures([]) == {}


NATIVE = [0.50, 0.54, 0.55]
HEADS = [[0.90, 0.92], [0.89, 0.93], [0.93, 0.95]]


def made(
    way: str, native: Sequence[float], heads: Sequence[Sequence[float]] | None, joint: float = 0.97
) -> list[Measured]:
    """Cells of these numbers, one for each seed."""
    result = []
    for seed, own in enumerate(native):
        settings = {"data": "mnist", "model": "shallow", "seed": seed, "way": way, "heads": 2}
        fresh = {} if heads is None else {"fresh": list(heads[seed])}
        result.append(Measured(settings, {"native": own, "joint": joint, **fresh}))
    return result


def test_a_claim_is_made_for_each_operator() -> None:
    flat = [[n + d, n - d] for n, d in zip(NATIVE, (0.01, 0.02, 0.0), strict=True)]
    cells = [*made(SUM, NATIVE, HEADS), *made(TIES, NATIVE, flat), *made(LOGITS, NATIVE, None)]
    verdict = STUDY.judge(cells)
    short, first, second = verdict.claims
    means = [fmean(values) for values in HEADS]
    p = stats.ttest_rel(means, NATIVE).pvalue
    assert first.holds is True
    assert first.n == 3
    assert first.evidence["p"] == pytest.approx(2 * p)  # Holm's, of two operators
    assert first.evidence["gap"] == pytest.approx(fmean(means) - fmean(NATIVE))
    fractions = [(f - n) / (0.97 - n) for f, n in zip(means, NATIVE, strict=True)]
    assert first.evidence["recovered"] == pytest.approx(fmean(fractions))
    assert second.holds is False
    assert second.evidence["recovered"] == pytest.approx(0)
    assert short.holds is None
    assert short.counted == "1 of 2"
    assert "(weights added). The best of them with a fresh head, weights added, " in short.text
    assert f"reaches {fmean(means):.3f}; adding" in short.text
    assert "adding logits reaches 0.530 without" in short.text
    assert "0.530 native, 0.920 fresh" in verdict.line


def test_one_seed_is_too_few_for_a_test() -> None:
    _, claim = STUDY.judge(made(SUM, NATIVE[:1], HEADS)).claims
    assert claim.holds is None
    assert "too few seeds" in claim.text


def test_without_a_shortfall_nothing_is_recovered() -> None:
    cells = made(SUM, NATIVE, HEADS, joint=0.4)
    assert STUDY.judge(cells).claims[0].evidence["recovered"] is None
    assert STUDY.tables(cells)[0].rows[0][-1] is None


def test_fresh_heads_are_held_against_those_of_an_untrained_network() -> None:
    low, same = [[0.7, 0.7], [0.71, 0.71], [0.74, 0.72]], [[0.91], [0.92], [0.935]]
    for heads, count in ((low, 2), (same, 0)):
        base = made(UNTRAINED, [0.1] * 3, heads)
        merges = [*made(SUM, NATIVE, HEADS), *made(MEAN, NATIVE, HEADS)]
        claim = next(c for c in STUDY.judge([*merges, *base]).claims if "below" in c.evidence)
        assert claim.evidence == {"count": count, "of": 2, "below": 0}
        assert claim.holds is (count == 2)


def test_fresh_heads_are_held_against_those_of_one_module() -> None:
    """Below it, joining has cost the features something, whatever the readout."""
    higher = [[0.96, 0.96], [0.955, 0.955], [0.97, 0.98]]
    merges = [*made(SUM, NATIVE, HEADS), *made(MEAN, NATIVE, HEADS)]
    for heads, below in ((higher, 2), ([[0.7], [0.71], [0.73]], 0)):
        claims = STUDY.judge([*merges, *made(ALONE, [0.1] * 3, heads)]).claims
        claim = next(c for c in claims if "below" in c.evidence)
        assert claim.evidence == {"count": 2 - below, "of": 2, "below": below}
        assert claim.holds is (below == 0)
        assert ("the features themselves" in claim.text) is (below > 0)


def test_variants_of_other_data_have_claims_too() -> None:
    cells = made(SUM, NATIVE, HEADS)
    other = [Measured({**c.settings, "data": "cifar10"}, c.result) for c in cells]
    verdict = STUDY.judge(Findings(cells, "preset `paper`", {"preset `paper` with `x=1`": other}))
    names = [claim.text.partition(",")[0] for claim in verdict.claims]
    assert names == ["MNIST", "MNIST", "CIFAR-10", "CIFAR-10"]
    assert not any("x=1" in claim.text for claim in verdict.claims)  # the data tell them apart
    again = STUDY.judge(Findings(cells, "preset `paper`", {"preset `paper` with `x=1`": cells}))
    assert ["x=1" in claim.text for claim in again.claims] == [False, False, True, True]


def test_diverged_modules_are_named() -> None:
    settings = {"data": "mnist", "model": "shallow", "seed": 0, "way": SUM, "heads": 2}
    cells = [Measured(settings, {"diverged": ["3"]})]
    verdict = STUDY.judge(cells)
    assert list(verdict.failed) == ["MNIST, shallow, sum, seed 0"]
    assert STUDY.tables(cells)[0].rows == []
