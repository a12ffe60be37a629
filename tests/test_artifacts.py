"""Any path of ours: what it is, what it opens as, and which data it wants."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import intarsia as ia
from intarsia.artifacts import (
    Kind,
    classifiers_of,
    data_for,
    is_study,
    kind_of,
    modules_of,
    open_artifact,
    open_module,
    open_modules,
    open_network,
    split_for,
    weights_path,
)
from intarsia.errors import DataError, FileError, TrainingError
from intarsia.hub import save_pretrained
from intarsia.studies import Store

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {"model": "mlp(8)", "epochs": 1, "sparsity": 0.5, "partition": "blocks(5)"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One artifact of every kind."""
    folder = tmp_path_factory.mktemp("artifacts")
    bank = ia.train("digits", **SETTINGS, out=folder / "bank", progress=False)
    merged = ia.compose(bank, "logits")
    merged.save(folder / "merged.safetensors")
    bank.save(folder / "demo" / "modules")
    save_pretrained(bank[0], folder / "module")
    save_pretrained(merged, folder / "composition")
    (folder / "stopped" / ".progress").mkdir(parents=True)
    Store(folder / "store")
    (folder / "archive.json").write_text("{}")
    (folder / "recipe.yaml").write_text("data: digits\n")
    (folder / "merge.yaml").write_text("models: [bank]\n")
    (folder / "unfinished.yaml").write_text("merge_method: ties\n")
    (folder / "letter.txt").write_text("Dear reader")
    (folder / "table.csv").write_text("one,kind\n1,a\n2,b\n")
    for picture in ("cat/1.png", "dog/2.JPG"):
        (folder / "pictures" / picture).parent.mkdir(parents=True)
        (folder / "pictures" / picture).touch()
        (folder / "split" / "train" / picture).parent.mkdir(parents=True)
        (folder / "split" / "train" / picture).touch()
    (folder / "notes" / "figures").mkdir(parents=True)
    (folder / "notes" / "figures" / "1.png").touch()
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text('{"model_type": "bert"}')
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    return folder


KINDS = {
    "bank": Kind.BANK,
    "bank/recipe.yaml": Kind.RECIPE,
    "merged.safetensors": Kind.COMPOSITION,
    "module/module.safetensors": Kind.MODULE,
    "demo": Kind.DEMO,
    "module": Kind.PRETRAINED,
    "stopped": Kind.RUN,
    "store": Kind.STORE,
    "archive.json": Kind.ARCHIVE,
    "recipe.yaml": Kind.RECIPE,
    "merge.yaml": Kind.MERGE_RECIPE,
    "unfinished.yaml": Kind.MERGE_RECIPE,
    "letter.txt": Kind.OTHER,
    "table.csv": Kind.DATA,
    "pictures": Kind.DATA,
    "split": Kind.DATA,
    "notes": Kind.OTHER,
    "bert": Kind.FOREIGN,
    "adapter": Kind.ADAPTER,
    ".": Kind.OTHER,
    "nowhere": Kind.OTHER,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_path_has_a_kind(name: str, folder: Path) -> None:
    assert kind_of(folder / name) is KINDS[name]
    assert is_study(folder / name) == (name in ("store", "archive.json"))


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda p: p.stem)
def test_recipes_of_the_project_are_told_apart(path: Path) -> None:
    expected = Kind.MERGE_RECIPE if path.stem.startswith("merge_") else Kind.RECIPE
    assert kind_of(path) is expected


def test_what_holds_modules_opens(folder: Path) -> None:
    bank = ia.Bank.load(folder / "bank")
    for name in ("bank", "demo"):
        opened = open_artifact(folder / name)
        assert isinstance(opened, ia.Bank)
        assert [module.digest for module in opened] == [module.digest for module in bank]
        assert open_modules([folder / name])[1].digest == bank[1].digest
    assert open_module(folder / "module").digest == bank[0].digest
    x = ia.load_data("digits").test.x[:20]
    for name in ("merged.safetensors", "composition"):
        opened = open_network(folder / name)
        assert isinstance(opened, ia.Composition)
        assert modules_of(opened) == opened.parts
        assert list(classifiers_of(opened)) == ["composition"]
        with torch.no_grad():
            assert torch.equal(opened(x), ia.compose(bank, "logits")(x))
    assert weights_path(folder / "demo") == folder / "demo" / "modules"
    assert weights_path(folder / "module").is_file()


def test_a_saved_classifier_opens_as_its_composition(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 4)), np.array(["a", "b"] * 30)
    classifier = ia.ModularClassifier("mlp(8)", epochs=1, random_state=0).fit(x, y)
    save_pretrained(classifier, tmp_path / "saved")
    opened = open_artifact(tmp_path / "saved")
    assert isinstance(opened, ia.Composition)
    assert opened.rewarded == classifier.composition_.rewarded
    with pytest.raises(DataError, match="give it with --data"):
        data_for(opened, None, {})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stopped", "run the same command again"),
        ("store", "the store of a study"),
        ("archive.json", "archive of a study"),
        ("recipe.yaml", "`intarsia train`"),
        ("merge.yaml", "`intarsia compose`"),
        ("letter.txt", "is not a safetensors file"),
        ("table.csv", "it is data: `intarsia train"),
        ("pictures", "it is data: `intarsia train"),
        ("nowhere", "no such file"),
        ("bert", "Module.of makes a module of its network"),
        ("adapter", "an adapter in peft's files: .*Module.from_adapter"),
    ],
)
def test_errors_say_what_a_path_is(name: str, said: str, folder: Path) -> None:
    with pytest.raises(FileError, match=said):
        open_artifact(folder / name)


def test_a_module_is_named_where_its_file_has_another_name(folder: Path, tmp_path: Path) -> None:
    module = replace(ia.Bank.load(folder / "bank")[0], name="Öl")
    ia.Bank([module]).save(tmp_path)
    for name in ("Öl.safetensors", "Öl"):
        with pytest.raises(FileError, match=r"module 'Öl' is in .*_l-\w+\.safetensors"):
            open_artifact(tmp_path / name)


def test_classes_of_other_data_are_told_apart(folder: Path) -> None:
    bank = ia.Bank.load(folder / "bank")
    both = ia.load_data(np.eye(4).repeat(5, 0), ["3", "8", "a", "b"] * 5)
    with pytest.raises(DataError, match=r"'a', which is not .* 'classes=\[3, 8\]'"):
        split_for(bank, both, "test")
    other = ia.load_data(np.eye(4).repeat(5, 0), ["a", "b"] * 10)
    with pytest.raises(DataError, match="none of it is"):
        split_for(bank, other, "test")


def test_one_module_or_network_is_asked_for(folder: Path) -> None:
    with pytest.raises(FileError, match="holds a bank: give the file of a module"):
        open_module(folder / "bank")
    with pytest.raises(FileError, match="compose it first"):
        open_network(folder / "demo")
    with pytest.raises(FileError, match="all of them diverged"):
        modules_of(ia.Bank([], diverged=["3"]))


def test_a_run_that_was_stopped_is_not_a_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise TrainingError("stopped")

    monkeypatch.setattr(ia.Bank, "save", stopped)
    with pytest.raises(TrainingError, match="stopped"):
        ia.train("digits", **SETTINGS, out=tmp_path / "run", progress=False)
    assert kind_of(tmp_path / "run") is Kind.RUN


def test_nobody_knows_the_data_of_a_network_trained_elsewhere() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    names = [str(digit) for digit in range(10)]
    module = ia.Module.of(network, rewarded="3", catalogue=names, shape=(1, 8, 8))
    data, same = data_for(module, "digits", {})
    assert (data.name, same) == ("digits", None)


def test_data_is_that_of_the_training_unless_others_are_named(folder: Path) -> None:
    bank = open_artifact(folder / "bank")
    data, same = data_for(bank, None, {})
    assert (data.name, same) == ("digits", True)
    some, same = data_for(bank, "digits", {"classes": ["7", "3"]})
    assert (some.catalogue, same) == (("7", "3"), False)
    split = split_for(bank, some, "test")
    assert set(split.y.tolist()) == {3, 7}
    assert len(split_for(bank, data, "all")) == 1797
    with pytest.raises(DataError, match="did you mean 'test'"):
        split_for(bank, data, "tset")


def test_a_header_that_lies_is_not_believed(folder: Path, tmp_path: Path) -> None:
    """What a path is follows from its name and header alone; opening it checks the rest."""
    (tmp_path / "bank.json").write_text(json.dumps({"format": "intarsia-bank", "version": 1}))
    assert kind_of(tmp_path) is Kind.BANK
    with pytest.raises(FileError):
        open_artifact(tmp_path)
