"""Study `base`: classes and tasks, experts of one base, and what joining leaves of them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intarsia.composition import OPERATORS, compose
from intarsia.data import load_data
from intarsia.errors import StudyError
from intarsia.measure.probe import FRESH_HEAD, HeadTraining, readout_inputs
from intarsia.models import initialise
from intarsia.modules import BASES
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.base.expert_merges import ARITHMETIC, NORMS, ExpertMerges, fresh_heads
from intarsia.studies.base.experts import JOINT, WAYS, base_classes, task_data
from intarsia.studies.base.fine_tuned import (
    COMPARED,
    FRESH,
    LOGITS,
    OWN,
    best_of_one_network,
    joined,
    verdict,
)
from intarsia.studies.maxent.shared.baselines import on, right
from intarsia.studies.tables import Spread
from intarsia.studies.verdict import Findings
from intarsia.training import train

NAMES = [f"c{i}" for i in range(10)]


def test_classes_are_parted_by_the_seed() -> None:
    base = base_classes(NAMES, 0.4, 0)
    assert len(base) == 4
    assert list(base) == sorted(base, key=NAMES.index)
    assert base == base_classes(NAMES, 0.4, 0)
    assert len({base_classes(NAMES, 0.4, seed) for seed in range(6)}) > 1


def test_the_readouts_inputs_are_what_the_last_layer_reads() -> None:
    network = initialise("mlp(7, dropout=0)", (5,), 3, 0)
    x = torch.randn(11, 5)
    features = readout_inputs(network, x, batch=4)
    assert features.shape == (11, 7)
    with torch.no_grad():
        last = network.layers[-1]
        torch.testing.assert_close(features @ last.weight.T, network.eval()(x))


def test_task_data_has_a_catalogue_of_its_own() -> None:
    data = load_data("digits")
    part = task_data(data, ["7", "2"], data.train.x[:5])
    assert part.catalogue == ("7", "2")
    assert part.public is not None
    assert len(part.public) == 5
    for split, own in ((data.train, part.train), (data.test, part.test)):
        assert torch.equal(own.x[own.y == 0], split.x[split.y == 7])
        assert torch.equal(own.x[own.y == 1], split.x[split.y == 2])
    assert part.scaling is data.scaling


def test_scales_are_tried_as_compose_would_join_the_experts() -> None:
    """Statistics averaged and recomputed, scales and fresh heads: as from whole compositions."""
    data = load_data("digits", classes=["0", "1", "2", "3"])
    how = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "temperature": 1.0, "progress": False}
    how |= {"epochs": 2, "learning_rate": 1e-2, "batch": 64}
    model = "resnet18(width=2)"
    base = train(data, model=model, objective="xe", partition=[["0", "1", "2", "3"]], **how)[0]
    bank = train(data, base=base, partition=[["0", "1"], ["2", "3"]], **how)
    head = {"epochs": 5, "learning_rate": 1e-2, "weight_decay": 1e-4, "batch": 32}
    settings = {"scales": [0.3, 1.0], "densities": [0.5], "seed": 0, "head": head, "selection": 0}
    others = ["emr", "centroid", "probabilities", "own", "entropy_router"]
    of_weights = "ties(density=1.0, base='zero')"
    settings["operators"] = [
        "sce(density=1.0)", "slerp", "regmean", "fisher", of_weights, *others
    ]  # fmt: skip
    settings["statistics"] = 0
    found = joined(settings, bank, data)
    assert found[LOGITS] == right(compose(bank, "logits"), data.test)
    for norms, recompute in NORMS.items():
        for name, own in found[norms].items():
            tried = {}
            for scale in (0.3, 1.0, 0.5):
                setting = "" if name == ARITHMETIC else "density=0.5, "
                spec = f"{name.replace(' ', '_')}({setting}scale={scale})"
                merged = compose(bank, spec, samples=data, recalibrate=recompute)
                tried[spec] = right(merged, data.validation)
            assert own["validation"] == pytest.approx(max(tried.values()), abs=0.02)
            assert own["validation"] == pytest.approx(tried[own["chosen"]], abs=0.02)
            merged = compose(bank, own["chosen"], samples=data, recalibrate=recompute)
            assert own["test"] == pytest.approx(right(merged, data.test), abs=0.02)
            if name == ARITHMETIC:
                network = merged.networks[0].network
                splits = {n: getattr(data, n) for n in ("train", "validation", "test")}
                features = {
                    n: readout_inputs(network, data.scaling(split.x)) for n, split in splits.items()
                }
                how = HeadTraining(**head, initial="zeros")
                (expected,) = fresh_heads([features], data, how, 0)
                assert own[FRESH] == pytest.approx(expected.test, abs=0.02)
                assert own[FRESH] > 0.4
    assert found["averaged"] != found["recomputed"]
    assert list(found[COMPARED]) == settings["operators"]
    for name, by_norms in found[COMPARED].items():
        assert list(by_norms) == (["averaged"] if name in others else list(NORMS))
        for norms, own in by_norms.items():
            merged = compose(bank, own["chosen"], samples=data, recalibrate=NORMS[norms])
            assert own["validation"] == pytest.approx(right(merged, data.validation), abs=0.02)
            assert own["test"] == pytest.approx(right(merged, data.test), abs=0.02)
    chosen = {name: own["averaged"]["chosen"] for name, own in found[COMPARED].items()}
    assert chosen["sce(density=1.0)"].startswith("sce(density=1.0, scale=")
    assert (chosen["slerp"], chosen["regmean"]) == ("slerp", "regmean")
    seen = ExpertMerges(bank, data, statistics=7).context.samples
    assert seen is not None
    assert len(seen) == 7
    few = joined(
        {**settings, "selection": 7, "operators": []}, bank, data
    )  # scores of seven samples
    scores = [own["validation"] * 7 for kind in NORMS for own in few[kind].values()]
    assert scores == pytest.approx([round(score) for score in scores])
    scores = [own["validation"] * 7 for kind in NORMS for own in found[kind].values()]
    assert scores != pytest.approx([round(score) for score in scores])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, threads) -> list[Measured]:
    study = find_study("base")
    store = Store(tmp_path_factory.mktemp("base") / "store")
    options = study.options("small", seeds=2, sparsities=[0.0, 0.9])
    with threads(1):
        return run(study, options, store, context=StudyContext(store, "cpu"))


def test_the_small_scale_is_measured_whole(small: list[Measured]) -> None:
    ways = {cell.settings["way"] for cell in small}
    assert ways == {JOINT, *WAYS}
    assert len(small) == 2 * (1 + 2 * len(WAYS))
    for cell in small:
        if cell.settings["way"] == JOINT:
            assert cell.result[JOINT] > 0.8
            continue
        assert cell.result[OWN] > (0.5 if cell.settings["sparsity"] else 0.8)
        assert 0 <= cell.result[LOGITS] <= 1
        found = cell.result["averaged"]  # an MLP has no BatchNorm to recompute
        assert "recomputed" not in cell.result
        assert 0 <= found[ARITHMETIC]["test"] <= 1
        assert 0.1 < found[ARITHMETIC][FRESH] <= 1
        assert found[ARITHMETIC]["chosen"].startswith("task_arithmetic(scale=")
        best = max(found.values(), key=lambda way: way["validation"])
        assert best_of_one_network(cell) == best["test"]
        assert sorted(name for task in cell.result["sets"] for name in task) == sorted(
            {name for task in cell.result["sets"] for name in task}
        )


def test_sparse_changes_have_smaller_files(small: list[Measured]) -> None:
    by_sparsity: dict[float, list[float]] = {}
    for cell in small:
        if cell.settings["way"] != JOINT:
            by_sparsity.setdefault(cell.settings["sparsity"], []).append(cell.result["file"])
    assert max(by_sparsity[0.9]) < min(by_sparsity[0.0])


def test_tables_figures_and_verdict(small: list[Measured]) -> None:
    study = find_study("base")
    summary, sparse = study.tables(small)
    assert [row[0] for row in summary.rows] == list(WAYS)
    assert summary.columns[-1] == "joint"
    assert sparse.columns[1] == "sparsity of changes"
    assert len(sparse.rows) == 2 * len(WAYS)
    (figure,) = study.figures(small).values()
    assert len(figure.axes) == 1
    said = verdict(Findings(small))
    assert len(said.claims) == 2
    assert all("paired by seed" in claim.text for claim in said.claims)
    assert "cross-entropy" in said.line


def test_all_operators_in_one_table(tmp_path: Path, threads) -> None:
    study, store = find_study("base"), Store(tmp_path / "store")
    given = {"ways": ["cross-entropy", "ME, all tasks"], "seeds": 1, "operators": "all"}
    options = study.options("small", **given)
    with threads(1):
        done = run(study, options, store, context=StudyContext(store, "cpu"))
    (table,) = [table for table in study.tables(done) if "all operators" in table.title]
    names = {n for n, how in OPERATORS.items() if how.on != "units" and n != "slerp"}
    assert {row[0] for row in table.rows} == names
    assert table.columns[1:3] == ["cross-entropy", "rank, cross-entropy"]
    accuracies = [row[1].mean for row in table.rows]
    assert accuracies == sorted(accuracies, reverse=True)
    assert table.rows[0][2] == 1
    for place, column in ((2, 1), (4, 3)):
        for row in table.rows:
            better = sum(other[column].mean > row[column].mean for other in table.rows)
            assert row[place] == 1 + better
    means = np.array([[row[column].mean for row in table.rows] for column in (1, 3)])
    # the rank of equals is their mean
    ranks = [[(row < v).sum() + (row <= v).sum() for v in row] for row in means]
    (said,) = [note for note in table.notes if "correlation" in note]
    correlation = np.corrcoef(ranks)[0, 1]
    assert f"ME, all tasks: {correlation:.2f}, of {len(names)} operators" in said
    claims = [c for c in verdict(Findings(done)).claims if "correlation" in c.evidence]
    (claim,) = claims if np.isfinite(correlation) else [None]
    assert claim is not None
    assert claim.holds is None
    assert claim.evidence["correlation"] == pytest.approx(correlation)
    for kind in ("logits", "weights"):
        own = [row for row in table.rows if OPERATORS.entry(row[0]).on == kind]
        for column, best in zip((1, 3), claim.evidence[kind], strict=True):
            reached = {row[0]: row[column].mean for row in own}
            assert reached[best] == max(reached.values())


def test_findings_speak_of_every_variant(small: list[Measured]) -> None:
    other = [
        dataclasses.replace(cell, settings={**cell.settings, "model": "mlp(33)"}) for cell in small
    ]
    said = verdict(Findings(small, variants={"other": other}))
    assert [claim.text for claim in said.claims[:2]] == [
        claim.text for claim in verdict(Findings(small)).claims
    ]
    assert len(said.claims) == 4
    assert all("mlp(33)" in claim.text for claim in said.claims[2:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_experts_are_joined_on_a_gpu_as_on_a_cpu() -> None:
    data = load_data("digits", classes=["0", "1", "2", "3"])
    how = {"preset": "paper", "sparsity": 0.0, "rounds": 0, "temperature": 1.0, "progress": False}
    how |= {"epochs": 2, "learning_rate": 1e-2, "batch": 64, "device": "cpu"}
    base = train(data, model="resnet18(width=2)", objective="xe", partition=[data.catalogue], **how)
    bank = train(data, base=base[0], partition=[["0", "1"], ["2", "3"]], **how)
    there = dataclasses.replace(
        data,
        train=on(data.train, torch.device("cuda")),
        validation=on(data.validation, torch.device("cuda")),
        test=on(data.test, torch.device("cuda")),
    )
    here, gpu = ExpertMerges(bank, data), ExpertMerges(bank, there)
    settings = {"scales": [1.0], "densities": [0.5], "selection": 0}
    for name, operator in OPERATORS.items():
        if operator.on == "weights":
            expected, found = here.joined(name), gpu.joined(name).cpu()
            assert float((found - expected).norm() / expected.norm()) < 1e-3, name
        if operator.on in ("weights", "logits"):
            expected, found = (side.accuracies(name, settings) for side in (here, gpu))
            for norms, own in expected.items():
                assert found[norms]["test"] == pytest.approx(own["test"], abs=0.02), name


def test_experts_count_once_however_often_they_were_joined(tmp_path: Path, threads) -> None:
    study, store = find_study("base"), Store(tmp_path / "store")
    given = {"ways": ["cross-entropy"], "seeds": 1}
    done = [
        cell
        for operators in (["sum"], [])
        for cell in run(
            study, study.options("small", **given, operators=operators), store, device="cpu"
        )
    ]
    assert len(done) == 4
    summary, every = study.tables(done)
    for label, statement in FRESH_HEAD.labelled().items():  # it has a column of fresh heads
        assert f"{label}: {statement}" in summary.notes
        assert summary.csv().count(statement) == len(summary.rows)
    assert {entry.n for row in summary.rows for entry in row if isinstance(entry, Spread)} == {1}
    assert [row[0] for row in every.rows] == ["sum"]


def test_cells_without_other_operators_stay(tmp_path: Path) -> None:
    study, context = find_study("base"), StudyContext(Store(tmp_path / "store"), "cpu")
    none, some = (
        study.plan(study.options("small", seeds=1, operators=which), context)
        for which in ([], ["sce"])
    )
    settings = {k: v for k, v in none[1].settings.items() if k != "operators"}
    assert dataclasses.replace(none[1], settings=settings).key == none[1].key
    assert not {cell.key for cell in none} & {cell.key for cell in some}
    with pytest.raises(StudyError, match="option 'operators' has 'sec'"):
        study.plan(study.options("small", operators=["sec"]), context)


def test_the_verdict_is_what_the_numbers_say() -> None:
    def cell(way: str, seed: int, logits: float, one: float) -> Measured:
        settings = {"data": "d", "model": "m", "partition": "random", "way": way, "seed": seed}
        found = {ARITHMETIC: {"validation": 1.0, "test": one}}
        return Measured(settings | {"sparsity": 0.0}, {LOGITS: logits, "averaged": found})

    me, usual = "ME, all tasks", "cross-entropy"
    numbers = [(0.70, 0.50, 0.5, 0.3), (0.72, 0.51, 0.52, 0.31), (0.71, 0.49, 0.51, 0.33)]
    cells = [
        one
        for seed, (a, b, c, d) in enumerate(numbers)
        for one in (cell(me, seed, a, c), cell(usual, seed, b, d))
    ]
    (claim,) = verdict(Findings(cells)).claims
    assert claim.holds is True
    assert "0.710 against 0.500 with logits added" in claim.text
    (claim,) = verdict(Findings([*cells[:4], cell(me, 2, 0.2, 0.1), cells[5]])).claims
    assert claim.holds is False
    (claim,) = verdict(Findings(cells[:2])).claims
    assert claim.holds is None


def test_cells_from_before_the_number_of_validation_samples_stay(tmp_path: Path) -> None:
    study, context = find_study("base"), StudyContext(Store(tmp_path / "store"), "cpu")
    all_of_them, some = (
        study.plan(study.options("small", seeds=1, selection=n), context) for n in (0, 50)
    )
    settings = {k: v for k, v in all_of_them[1].settings.items() if k != "selection"}
    assert dataclasses.replace(all_of_them[1], settings=settings).key == all_of_them[1].key
    assert not {cell.key for cell in all_of_them} & {cell.key for cell in some}
    with pytest.raises(StudyError, match="option 'selection' is -1"):
        study.plan(study.options("small", selection=-1), context)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("head", {"epochs": 3, "foo": 1}, "option 'head' has 'foo'"),
        ("base_fraction", 1.0, "option 'base_fraction' has 1.0: expected a number from 0, below 1"),
        ("amount", -1, "option 'amount' has -1: expected a number from 0"),
        ("densities", [2], "option 'densities' has 2: expected fractions up to 1"),
        ("scales", [0], "option 'scales' has 0: expected numbers above 0"),
        ("sparsities", [2], "option 'sparsities' has 2: expected a number from 0, below 1"),
    ],
)
def test_what_cannot_be_is_said_before_training(
    tmp_path: Path, key: str, value: Any, words: str
) -> None:
    study, context = find_study("base"), StudyContext(Store(tmp_path / "store"), "cpu")
    with pytest.raises(StudyError, match=words):
        study.plan(study.options("small", **{key: value}), context)


def test_what_is_unknown_is_named(tmp_path: Path) -> None:
    study, context = find_study("base"), StudyContext(Store(tmp_path / "store"), "cpu")
    for key, value in (("ways", ["mse"]), ("partitions", ["even"]), ("partitions", ["randperm"])):
        with pytest.raises(StudyError, match=f"option '{key}' has '{value[0]}'"):
            study.plan(study.options("small", **{key: value}), context)


@pytest.mark.usefixtures("one_thread")
def test_a_base_by_name_learns_all_classes(tmp_path: Path) -> None:
    """Experts of a network that was pretrained elsewhere; the public images are of other data."""

    @BASES.register("warm")
    def warm() -> tuple[str, dict[str, torch.Tensor]]:
        return "mlp(24, dropout=0)", initialise("mlp(24, dropout=0)", (64,), 4, 3).state_dict()

    study, store = find_study("base"), Store(tmp_path / "store")
    given = {"models": ["warm"], "named": True, "public": "digits", "seeds": 1}
    options = study.options("small", **given, ways=["cross-entropy", "ME, public images"])
    context = StudyContext(store, "cpu")
    with pytest.raises(StudyError, match="named is true: did you mean 'warm'"):
        study.plan({**options, "models": ["wram"]}, context)
    with pytest.raises(StudyError, match="name the data whose images are public"):
        study.plan({**options, "public": ""}, context)
    assert not [cell for cell in study.plan(options, context) if cell.banks]
    done = run(study, options, store, context=context)
    assert len(done) == 3
    by_way = {cell.settings["way"]: cell.result for cell in done}
    assert len([n for task in by_way["cross-entropy"]["sets"] for n in task]) == 10
    assert by_way["ME, public images"][LOGITS] > 0.3
