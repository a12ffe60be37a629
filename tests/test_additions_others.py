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
from intarsia.errors import RecipeError
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
