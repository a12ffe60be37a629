"""Additions from outside the package: a file of one's own, one registration, no other change."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from typer.testing import CliRunner

import intarsia as ia
from intarsia.errors import CompositionError, RecipeError
from intarsia.studies import Store, StudyContext, find_study, run

Addition = Callable[[str, str], ModuleType]
OPERATOR = '''
import torch
import intarsia as ia


@ia.operator("largest", on="weights", paper="a note of ours")
def largest(states, context, scale: float = 1.0):
    """Of every weight the value that is farthest from 0."""
    joined = {}
    for name in context.plan:
        stacked = torch.stack([state[name] for state in states])
        joined[name] = scale * stacked.gather(0, stacked.abs().argmax(0, keepdim=True))[0]
    return joined
'''
WRONG = """
import intarsia as ia

weights = {"on": "weights", "paper": "a note of ours"}


@ia.operator("first", **weights)
def first(states, context):
    return states[0]


@ia.operator("nothing", **weights)
def nothing(states, context):
    pass


@ia.operator("fewer", **weights)
def fewer(states, context):
    return dict(list(states[0].items())[:1])


@ia.operator("narrow", **weights)
def narrow(states, context):
    return {name: tensor[:1] for name, tensor in states[0].items()}


@ia.operator("in_place", **weights)
def in_place(states, context):
    return {name: tensor.add_(states[1][name]) for name, tensor in states[0].items()}


@ia.operator("few_logits", on="logits", paper="a note of ours")
def few_logits(logits, context):
    return logits[0][:, :2]
"""
STUDY = """
import intarsia as ia
from intarsia.studies import Cell, Study, Table, register

SIZES = {"small": {"seeds": 2, "widths": [4, 8]}}


def cells(options, context):
    return [
        Cell("narrow", {"width": width, "seed": seed}, {"modules": context.plan(
            "digits", f"mlp({width})", [("0",), ("1",)], seed, epochs=1, sparsity=0,
        )})
        for width in options["widths"] for seed in range(options["seeds"])
    ]


def measure(cell, context):
    bank = context.bank(cell.banks["modules"])
    return {"accuracy": ia.evaluate(ia.compose(bank, "sum"), context.data("digits").test).accuracy}


def tables(measured):
    rows = [[m.settings["width"], f"{m.result['accuracy']:.4f}"] for m in measured]
    return [Table("by width", ["width", "accuracy"], rows)]


register(Study("narrow", "Narrow", "How narrow?", SIZES, cells, measure, tables, lambda m: {}))
"""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def addition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Addition:
    """Imports a file of this text, as a user's program does."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, text: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(text)
        module = import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return module

    return add


def test_an_operator_is_one_function(addition: Addition, tmp_path: Path) -> None:
    data = ia.load_data("digits")
    bank = ia.train(data, model="mlp(8)", epochs=1, sparsity=0, partition=[["0"], ["1"]])
    with pytest.raises(RecipeError, match="largest"):
        ia.compose(bank, "largest")
    addition("largest_weights", OPERATOR)
    merged = ia.compose(bank, "largest(scale=2)")
    a, b = (module.state for module in bank)
    for name, value in merged.joined.state.items():
        torch.testing.assert_close(
            value, 2 * torch.where(a[name].abs() >= b[name].abs(), a[name], b[name])
        )
    merged.save(tmp_path / "merged.safetensors")
    again = ia.Composition.load(tmp_path / "merged.safetensors")
    assert torch.equal(again(data.test.x), merged(data.test.x))
    with pytest.raises(RecipeError, match="largest"):
        ia.compose(bank, "largset")
    from intarsia.cli.app import app

    listed = CliRunner().invoke(app, ["operators", "--json"])
    assert "largest" in listed.stdout
    assert "a note of ours" in listed.stdout


def test_what_an_operator_does_wrong_is_told(
    addition: Addition, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "nothing", "fewer", "narrow", "in_place", "few_logits"):
        monkeypatch.setitem(ia.OPERATORS, name, None)  # and gone afterwards
    data = ia.load_data("digits")
    bank = ia.train(data, model="mlp(8)", epochs=1, sparsity=0, partition=[["0"], ["1"]])
    addition("wrong_operators", WRONG)
    entry, x = ia.OPERATORS["first"], data.test.x
    assert torch.equal(ia.compose(bank, entry)(x), ia.compose(bank, "first")(x))
    for name, said in (
        ("nothing", "nothing gives a NoneType: an operator on weights returns a state dict"),
        ("fewer", r"gives nothing for the tensor 'layers\.0\.bias'"),
        ("narrow", r"gives a tensor of shape \(1, 64\) for the tensor 'layers\.0\.weight'"),
        ("few_logits", r"gives a tensor of shape \(1, 2\) for logits of shape \(1, 10\)"),
    ):
        with pytest.raises(CompositionError, match=said):
            ia.compose(bank, name)
    with pytest.raises(CompositionError, match="writes into the states it is given"):
        ia.compose(bank, "in_place")
    with pytest.raises(RecipeError, match="works on 'weight': did you mean 'weights'"):
        ia.operator("wrong", on="weight", paper="")  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="an operator 'sum' already, one of intarsia's own"):
        ia.operator("sum", on="weights", paper="")(lambda states, context: states[0])


def test_a_study_is_one_file(addition: Addition, tmp_path: Path) -> None:
    addition("narrow_study", STUDY)
    study, store = find_study("narrow"), Store(tmp_path / "store")
    options = study.options("small", widths=[4])
    measured = run(study, options, store, context=StudyContext(store, "cpu"))
    assert [m.settings for m in measured] == [{"width": 4, "seed": 0}, {"width": 4, "seed": 1}]
    again = run(study, options, store, context=StudyContext(store, "cpu"))
    assert [m.result for m in again] == [m.result for m in measured]
    (table,) = study.tables(measured)
    assert [row[0] for row in table.rows] == [4, 4]
