"""Data that a study loads in another way than usual: other cells, other banks, another variant."""

import shlex
from pathlib import Path

import pytest

import intarsia as ia
from intarsia.errors import DataError, RecipeError
from intarsia.studies import Cell, Findings, Store, StudyContext, find_study, run
from intarsia.studies.maxent.single import tables
from intarsia.studies.options import run_command, variant_label

STUDY = find_study("single")
OTHER = {"seed": 3, "scale": "signed"}
SMALL = {"models": ["mlp(4)"], "seeds": 1, "recipe": {"epochs": 1, "sparsity": 0.5, "rounds": 1}}


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return StudyContext(Store(tmp_path / "store"), "cpu")


def planned(context: StudyContext, **options: object) -> Cell:
    (cell,) = STUDY.plan(STUDY.options("small", **{**SMALL, **options}), context)
    return cell


def test_no_options_are_the_cells_that_there_were(context: StudyContext) -> None:
    options = STUDY.options("small", **SMALL)
    usual = {key: value for key, value in options.items() if key != "data_options"}
    (before,) = STUDY.plan(usual, context)
    assert planned(context).key == before.key
    assert "data_options" not in before.settings


def test_options_make_other_cells_and_banks_of_the_data_they_ask_for(context: StudyContext) -> None:
    usual, other = planned(context), planned(context, data_options=OTHER)
    assert other.settings["data_options"] == OTHER
    assert other.key != usual.key
    plans = [cell.banks["pruned"] for cell in (usual, other)]
    loaded = [ia.load_data("digits"), ia.load_data("digits", **OTHER)]
    assert [plan.data_digest for plan in plans] == [data.digest for data in loaded]
    assert [context.data_of(plan).digest for plan in plans] == [data.digest for data in loaded]
    elsewhere = StudyContext(Store(context._store.path), "cpu")
    assert elsewhere.data_of(plans[1]).digest == loaded[1].digest


@pytest.mark.usefixtures("one_thread")
def test_a_cell_is_measured_on_the_data_it_was_trained_for(context: StudyContext) -> None:
    options = STUDY.options("small", **SMALL, data_options=OTHER)
    store = context._store
    assert isinstance(store, Store)
    (measured,) = run(STUDY, options, store, context=context)
    cell = planned(context, data_options=OTHER)
    test = ia.load_data("digits", **OTHER).test
    expected = [ia.evaluate(module, test).accuracy for module in store.bank(cell.banks["pruned"])]
    assert measured.result["pruned"]["accuracy"] == pytest.approx(expected, abs=1e-5)
    assert measured.settings["data_options"] == OTHER
    assert STUDY.judge(Findings([measured])).claims
    assert tables([measured])[0].rows


def test_they_are_a_variant_with_a_command_of_its_own() -> None:
    options = STUDY.options("small", data_options=OTHER)
    assert variant_label(STUDY, STUDY.options("small")) == "preset `paper`"
    assert "data_options={seed: 3, scale: signed}" in variant_label(STUDY, options)
    words = shlex.split(run_command(STUDY, options))
    assert words[-2:] == ["--set", "data_options={seed: 3, scale: signed}"]


def test_what_load_data_does_not_take_is_named(context: StudyContext) -> None:
    with pytest.raises(RecipeError, match="no option 'sede': did you mean 'seed'"):
        planned(context, data_options={"sede": 3})
    with pytest.raises(DataError, match="digits has no groups 'writer'"):
        planned(context, data_options={"groups": "writer"})
