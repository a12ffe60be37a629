"""The command line: the whole way from data to answer, overrides, and how it fails."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from command_line import CommandLine, run_without_torch
from sklearn.datasets import load_digits

import intarsia as ia
from intarsia.data import Split
from intarsia.demos.demo import SETTINGS
from intarsia.measure import FRESH_HEAD, compatibility, compatibility_matrix
from intarsia.measure import path as walk
from intarsia.models import build
from intarsia.training.settings.presets import DataSize

ROOT = Path(__file__).resolve().parents[2]
MERGES = sorted((ROOT / "recipes").glob("merge_*.yaml"))
RECIPES = sorted(set((ROOT / "recipes").glob("*.yaml")) - set(MERGES))
TINY = ["--data", "digits", "--model", "mlp(32)", "--sparsity", "0.5", "--epochs", "2"]
CLI = CommandLine()
call, answer, refusal = CLI.call, CLI.answer, CLI.refusal

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("trained") / "bank"
    return folder, answer("train", folder, *TINY, "--seeds", "0,1", "--learning-rate", 0.01)


@pytest.fixture(scope="module")
def merged(trained: tuple[Path, Any]) -> Path:
    path = trained[0].parent / "whole.safetensors"
    call("compose", trained[0], "--seed", 1, "-o", path, "--operator", "logits")
    return path


def test_train_reports_what_its_folder_holds(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, result = trained
    bank = ia.Bank.load(folder)
    assert [m["name"] for m in result["modules"]] == list(bank.names)
    assert len(bank) == 20
    for row, module in zip(result["modules"], bank, strict=True):
        assert row["digest"] == module.digest
        assert row["density"] == module.density
        assert row["bytes"] == (folder / row["file"]).stat().st_size
        assert row["accuracy"] == module.provenance["scores"]["validation"]["accuracy"]
    assert result["ceiling"] == math.log(10)
    assert result["engine"] == bank.report["engine"]
    assert result["diverged"] == []


def test_one_module_is_counted_as_one(tmp_path: Path) -> None:
    one = ["--partition", "0", "--epochs", 1, "--model", "mlp(8)"]
    printed = call("train", tmp_path / "out", "--data", "digits", *one).stdout
    assert "1 module:" in printed
    assert "deviation" not in printed


def test_train_again_reads_the_finished_folder(trained: tuple[Path, dict[str, Any]]) -> None:
    folder, result = trained
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("*.*")}
    again = call("train", folder / "recipe.yaml", folder)
    assert {p.name: p.stat().st_mtime_ns for p in folder.glob("*.*")} == before
    assert "3-s1" in again.stdout
    assert f"engine: {result['engine']} on cpu" in again.stdout
    assert "20 modules" in again.stdout


def test_compose_writes_what_the_library_composes(
    trained: tuple[Path, Any], merged: Path, tmp_path: Path
) -> None:
    bank = ia.Bank.load(trained[0]).seed(1)
    x = ia.load_data("digits").test.x
    with torch.no_grad():
        assert torch.equal(ia.Composition.load(merged)(x), ia.compose(bank, "logits")(x))
        out = tmp_path / "nine.safetensors"
        result = answer("compose", trained[0], "--seed", 1, "--without", 3, "-o", out)
        expected = ia.compose([m for m in bank if m.rewarded != ("3",)])
        assert torch.equal(ia.Composition.load(out)(x), expected(x))
    assert result["operator"] == "inlay"  # a small bank; the library's tests have the others
    assert result["rewarded"] == [c for c in "012456789" if c != "3"]
    assert result["bytes"] == out.stat().st_size
    # A composition and a module file together: three is back.
    ten = tmp_path / "ten.safetensors"
    both = [out, trained[0] / "3-s1.safetensors", "-o", ten]
    call("compose", *both, "--operator", "sum")
    with torch.no_grad():
        assert torch.equal(ia.Composition.load(ten)(x), ia.compose(bank, "sum")(x))


def test_compose_takes_settings_of_the_operator_and_samples(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    data, bank = ia.load_data("digits"), ia.Bank.load(trained[0])
    bank = [bank[name] for name in ("3-s0", "8-s0")]
    x, out = data.test.x, tmp_path / "out.safetensors"
    paths = [trained[0] / f"{module.name}.safetensors" for module in bank]
    words = ["compose", *paths, "-o", out, "--operator"]
    result = answer(*words, "ties(density=0.3)")
    assert result["operator"] == "ties(density=0.3)"
    merged = ia.Composition.load(out)
    with torch.no_grad():
        assert torch.equal(merged(x), ia.compose(bank, "ties(density=0.3)")(x))
    result = answer(*words, "inlay", "--samples", "digits", "--calibrate")
    expected = ia.compose(bank, "inlay", samples=data, calibrate=True)
    assert result["calibration"] == expected.report["calibration"]
    assert result["samples"] == len(data.validation)
    with torch.no_grad():
        assert torch.equal(ia.Composition.load(out)(x), expected(x))
    shown = call(*words, "inlay", "--samples", "digits", "--calibrate").stdout
    for way in ("without", "with"):
        assert f"{result['calibration'][f'accuracy_{way}']:.4f}" in shown
    assert "offset" in call("inspect", out).stdout


def test_compose_aligns_modules_of_two_origins(trained: tuple[Path, Any], tmp_path: Path) -> None:
    pair = [trained[0] / "3-s0.safetensors", trained[0] / "8-s1.safetensors"]
    out = tmp_path / "out.safetensors"
    assert "its origin is" in refusal("compose", *pair, "-o", out, "--operator", "sum")
    result = answer("compose", *pair, "-o", out, "--align", "weights", "--no-recalibrate")
    assert (result["operator"], result["align"]) == ("sum", "weights")
    bank = ia.Bank.load(trained[0])
    pair = [bank["3-s0"], bank["8-s1"]]
    expected = ia.compose(pair, "sum", align="weights", recalibrate=False)
    x = ia.load_data("digits").test.x
    with torch.no_grad():
        assert torch.equal(ia.Composition.load(out)(x), expected(x))


def test_compose_flags_override_the_recipe(trained: tuple[Path, Any], tmp_path: Path) -> None:
    recipe, out = tmp_path / "merge.yaml", tmp_path / "out.safetensors"
    settings = {
        "merge_method": "ties", "models": [str(trained[0])], "parameters": {"density": 0.4},
        "base_model": "zero", "seed": 1, "without": ["3"],
    }  # fmt: skip
    recipe.write_text(yaml.safe_dump(settings))
    result = answer("compose", recipe, "-o", out)
    assert result["operator"] == "ties(density=0.4, base='zero')"
    assert len(result["parts"]) == 9
    result = answer("compose", recipe, "-o", out, "--operator", "mean", "--seed", 0, "--without", 5)
    assert (result["operator"], result["rewarded"]) == ("mean", list("012346789"))
    assert {part["name"][-2:] for part in result["parts"]} == {"s0"}


def test_operators_lists_the_registry() -> None:
    from intarsia.composition import OPERATORS

    result = {entry["name"]: entry for entry in answer("operators")["operators"]}
    assert set(result) == set(OPERATORS)
    assert result["weighted"]["settings"] == {"weights": 1.0, "normalise": False}
    assert (result["ties"]["on"], result["ties"]["samples"]) == ("weights", False)
    assert result["ties"]["paper"] == "https://arxiv.org/abs/2306.01708"
    assert result["fisher"]["samples"] is True
    shown = call("operators").stdout
    assert all(name in shown for name in result)
    assert "fisher*" in shown


def test_path_is_the_librarys(trained: tuple[Path, Any], tmp_path: Path) -> None:
    a, b = (trained[0] / f"{name}-s0.safetensors" for name in "38")
    picture = tmp_path / "path.svg"
    words = ["path", a, b, "--points", 5, "--rows", 200, "--figure", picture]
    result = answer(*words)
    bank = ia.Bank.load(trained[0])
    expected = walk(bank["3-s0"], bank["8-s0"], ia.load_data("digits"), 5, samples=200)
    assert result == {"data": "digits", "trained_on_this_data": True, **expected.to_json()}
    ElementTree.parse(picture)
    assert "barrier" in call(*words).stdout
    other = trained[0] / "8-s1.safetensors"
    assert "align them first" in refusal("path", a, other, "--points", 3)
    assert len(answer("path", a, other, "--points", 3, "--align", "weights")["t"]) == 3


def test_path_matches_classes_by_name(trained: tuple[Path, Any]) -> None:
    a, b = (trained[0] / f"{name}-s0.safetensors" for name in "38")
    run = call("path", a, b, "--points", 3, "--set", "classes=['8', '3', '0']", "--json")
    assert "not the data" in run.stderr
    # At t = 1 it is module 8 alone: right on its own class, by name and not by place.
    some = ia.load_data("digits", classes=["8", "3", "0"]).test
    labels = torch.tensor([8, 3, 0])[some.y]
    module = ia.Bank.load(trained[0])["8-s0"]
    score = ia.evaluate(module, Split(some.x, labels), ["3", "8"])
    curve = json.loads(run.stdout)["curves"]["test"]
    assert curve["accuracy"][-1] == pytest.approx(score.accuracy)


def test_compatibility_is_the_librarys(trained: tuple[Path, Any], tmp_path: Path) -> None:
    bank, data = ia.Bank.load(trained[0]).seed(0), ia.load_data("digits")
    picture = tmp_path / "matrix.svg"
    words = ["compatibility", trained[0], "--seed", 0, "--samples", "digits", "--figure", picture]
    result = answer(*words)
    assert result == compatibility_matrix(bank, data).to_json()
    ElementTree.parse(picture)
    assert "interference" in call(*words).stdout
    pair = [trained[0] / f"{name}-s0.safetensors" for name in "38"]
    result = answer("compatibility", *pair, "--samples", "digits")
    assert result == compatibility(bank["3-s0"], bank["8-s0"], data).to_json()
    bare = call("compatibility", *pair)
    assert "give them with --samples" in bare.stderr
    assert "mask jaccard" in bare.stdout


def test_what_fits_is_measured_once(
    trained: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not it is drawn; of a pair that is not drawn there is no matrix."""
    counted = Counter[str]()

    def matrix(*given: Any) -> Any:
        counted["matrix"] += 1
        return compatibility_matrix(*given)

    monkeypatch.setattr("intarsia.measure.compatibility_matrix", matrix)
    words = ["compatibility", trained[0], "--seed", 0]
    answer(*words, "--figure", tmp_path / "matrix.svg")
    assert counted["matrix"] == 1
    answer(*words)
    assert counted["matrix"] == 2
    answer("compatibility", *(trained[0] / f"{name}-s0.safetensors" for name in "38"))
    assert counted["matrix"] == 2


def test_probe_is_the_librarys(trained: tuple[Path, Any], merged: Path, tmp_path: Path) -> None:
    """A bank's modules of one seed are joined, a composition is taken as it is, and so is joint."""
    bank, data = ia.Bank.load(trained[0]).seed(0), ia.load_data("digits")
    joint = trained[0] / "3-s0.safetensors"
    words = ["probe", trained[0], "--seed", 0, "--operator", "mean", "--seeds", 2]
    result = answer(*words, "--epochs", 2, "--joint", joint)
    whole, reference = ia.compose(bank, "mean"), ia.Module.load(joint)
    expected = ia.fresh_head(whole, data, seeds=(0, 1), epochs=2, joint=reference).to_json()
    assert result == {"path": str(trained[0]), "trained_on_this_data": True, **expected}
    whole.save(tmp_path / "mean.safetensors")
    options = ["--protocol", "literal", "--epochs", 1, "--head", "layers.1", "--joint", "0.9,0.8"]
    other = answer("probe", tmp_path / "mean.safetensors", "--data", "digits", *options)
    assert (other["native"], other["protocol"]) == (expected["native"], "literal")
    assert other["joint"]["values"] == [0.9, 0.8]
    shown = " ".join(call(*words, "--epochs", 1).stdout.split())
    assert all(statement in shown for statement in FRESH_HEAD.labelled().values())
    assert "no readout in common" in refusal("probe", merged)
    assert "choose with --seed" in refusal("probe", trained[0])
    assert "did you mean 'cached'" in refusal(*words, "--protocol", "cache")


def test_probe_ignores_no_option(trained: tuple[Path, Any], merged: Path) -> None:
    """An operator joins the parts of a composition anew; what cannot be meant is refused."""
    data, parts = ia.load_data("digits"), ia.Composition.load(merged).parts
    again = answer("probe", merged, "--data", "digits", "--operator", "mean", "--epochs", 1)
    expected = ia.fresh_head(ia.compose(parts, "mean"), data, epochs=1)
    assert again["native"]["mean"] == expected.native.mean
    assert again["fresh"]["mean"] == expected.fresh.mean
    trained_here = answer("probe", merged, "--operator=mean", "--epochs", 1, "--joint", "train")
    assert trained_here["joint"]["n"] == 1
    assert trained_here["joint_recipe"]["objective"] == "xe"
    assert "holds a composition, and --seed 0" in refusal("probe", merged, "--seed", 0)
    module = trained[0] / "3-s0.safetensors"
    assert "nothing to join with by --operator ties" in refusal("probe", module, "--operator=ties")


def test_compact_is_smaller_and_answers_the_same(trained: tuple[Path, Any], tmp_path: Path) -> None:
    wide = tmp_path / "inlay.safetensors"
    call("compose", trained[0], "--seed", 0, "-o", wide, "--operator", "inlay")
    x = ia.load_data("digits").test.x
    for path in (wide, trained[0] / "3-s0.safetensors"):
        out = tmp_path / "small.safetensors"
        result = answer("compact", path, "-o", out)
        before = ia.Composition.load(path) if path == wide else ia.Module.load(path).to_module()
        after = ia.Module.load(out)
        assert result["parameters"] == after.parameters <= result["before"]["parameters"]
        assert result["before"]["bytes"] == path.stat().st_size
        with torch.no_grad():
            torch.testing.assert_close(after.to_module()(x), before(x))
    assert "before" in call("compact", wide, "-o", tmp_path / "small.safetensors").stdout
    listed = trained[0] / "3-s0.safetensors"
    kept = {path: path.read_bytes() for path in (wide, listed)}
    assert "is what is read" in refusal("compact", wide, "-o", wide)
    for words in (["compact", wide], ["compose", trained[0], "--seed", 0]):
        assert "is a module of the bank in" in refusal(*words, "-o", listed)
    assert {path: path.read_bytes() for path in kept} == kept


def test_export_writes_tensors_and_onnx(
    trained: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = trained[0] / "3-s0.safetensors", tmp_path / "tensors.safetensors"
    result = answer("export", path, "-o", out)
    assert (result["kind"], result["networks"]) == ("safetensors", 1)
    state = ia.Module.load(path).state
    assert all(torch.equal(state[k], t) for k, t in safetensors.torch.load_file(out).items())
    monkeypatch.setattr("intarsia.exports._onnx", lambda model, about, example: b"onnx")
    result = answer("export", path, "-o", tmp_path / "three.bin", "--format", "onnx")
    assert (result["kind"], result["inputs"]) == ("onnx", "raw float32, N x 1 x 8 x 8")
    assert "N x 1 x 8 x 8" in call("export", path, "-o", tmp_path / "three.onnx").stdout
    assert (tmp_path / "three.onnx").read_bytes() == b"onnx"


@pytest.mark.parametrize("name", ["whole.safetensors", "bank.json", "3-s0.safetensors"])
def test_export_writes_over_nothing_that_it_would_lose(
    name: str, trained: tuple[Path, Any], merged: Path, tmp_path: Path
) -> None:
    bank = shutil.copytree(trained[0], tmp_path / "bank")
    shutil.copy(merged, bank / "whole.safetensors")
    before = {path: path.read_bytes() for path in bank.iterdir() if path.is_file()}
    words = ["export", bank / "whole.safetensors", "-o", bank / name, "--format", "safetensors"]
    assert "give another file with -o" in refusal(*words)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("text", ['[{"name": "First Bank"}]', "no JSON", '{"files": 3}'])
def test_a_strangers_bank_json_is_in_nobodys_way(text: str, merged: Path, tmp_path: Path) -> None:
    (tmp_path / "bank.json").write_text(text)
    call("export", merged, "-o", tmp_path / "tensors.safetensors")
    assert (tmp_path / "bank.json").read_text() == text
    assert "the listing of the bank" in refusal("export", merged, "-o", tmp_path / "bank.json")


def test_evaluate_can_abstain(merged: Path, trained: tuple[Path, Any]) -> None:
    test = ia.load_data("digits").test
    result = answer("evaluate", merged, "--rewarded", "3,7", "--abstain", 0.8)["abstention"]
    answers = ia.Composition.load(merged).predict(test.x, abstain=0.8)
    known = (test.y == 3) | (test.y == 7)
    mine = result["composition"]
    assert mine["answered"] == pytest.approx((answers[known] >= 0).double().mean().item())
    assert mine["refused"] == pytest.approx((answers[~known] < 0).double().mean().item())
    right = (answers == test.y)[known & (answers >= 0)]
    assert mine["accuracy"] == pytest.approx(right.double().mean().item())
    shown = call("evaluate", trained[0], "--abstain", 0.8).stdout
    assert "above 0.8 of the largest entropy" in shown
    assert "abstention" not in answer("evaluate", merged)


def test_evaluate_asks_about_unknown_classes(
    merged: Path, trained: tuple[Path, Any], tmp_path: Path
) -> None:
    test = ia.load_data("digits").test
    whole, strange = ia.Composition.load(merged), tmp_path / "strange.npz"
    pixels = np.random.default_rng(0).integers(0, 17, (50, 64)).astype(np.float32)
    np.savez(strange, x=pixels, y=np.array(["noise", "more"])[np.arange(50) % 2])
    words = ("evaluate", merged, "--unknown", strange, "--abstain", 0.8)
    result = answer(*words, "--unknown-set", "test=0.4")
    outside = ia.load_data(strange, test=0.4).test
    assert len(outside) == 20
    expected = ia.evaluate(whole, test, unknown=outside.x)
    assert result["models"] == {"composition": expected.to_json()}
    assert result["unknown"] == str(strange)
    held = ia.abstention(whole, test, outside, 0.8)
    assert result["abstention"] == {"composition": held.to_json()}
    shown = call(*words).stdout
    assert "samples of unknown classes" in shown
    shown = call("evaluate", trained[0], *words[2:4]).stdout
    for score in answer("evaluate", trained[0], *words[2:4])["models"].values():
        assert f"{score['unknown']['auroc_entropy']:.4f}" in shown
        assert f"{score['unknown']['entropy']:.4f}" in shown
    assert "classes named as in the catalogue" in call(*words[:3], "digits").stderr
    assert "name that" in call("evaluate", merged, "--unknown-set", "seed=1", code=2).stderr
    assert "--unknown-set 'test': expected KEY=VALUE" in refusal(*words, "--unknown-set", "test")
    np.savez(strange, x=pixels[:, :9], y=np.array(["noise", "more"])[np.arange(50) % 2])
    assert "the unknown samples do not fit" in refusal(*words)


def test_evaluate_asks_about_mirror_images(merged: Path) -> None:
    test = ia.load_data("digits").test
    whole = ia.Composition.load(merged)
    result = answer("evaluate", merged, "--flip", "--rewarded", "3,7", "--abstain", 0.8)
    expected = ia.evaluate(whole, test, ["3", "7"], flips=True)
    assert result["flips"] is True
    assert result["models"] == {"composition": expected.to_json()}
    assert result["models"] != answer("evaluate", merged, "--rewarded", "3,7")["models"]
    known, others = test.select([3, 7]), test.select([0, 1, 2, 4, 5, 6, 8, 9])
    held = ia.abstention(whole, known, others, 0.8, flips=True)
    assert result["abstention"] == {"composition": held.to_json()}
    assert (
        "test split, pictures and their mirror images" in call("evaluate", merged, "--flip").stdout
    )


def test_evaluate_gives_the_librarys_measures(trained: tuple[Path, Any], merged: Path) -> None:
    data = ia.load_data("digits")
    result = answer("evaluate", merged, "--data", "digits", "--rewarded", "3,7")
    expected = ia.evaluate(ia.Composition.load(merged), data.test, ["3", "7"])
    assert result["models"] == {"composition": expected.to_json()}
    assert result["trained_on_this_data"] is True
    result = answer("evaluate", trained[0], "--split", "validation")  # data as it was trained on
    assert len(result["models"]) == 20
    module = ia.Bank.load(trained[0])["8-s0"]
    assert result["models"]["8-s0"] == ia.evaluate(module, data.validation).to_json()
    file = answer("evaluate", trained[0] / "8-s0.safetensors", "--split", "validation")
    assert file["models"]["8-s0"] == result["models"]["8-s0"]


def test_evaluate_joins_all_splits(merged: Path) -> None:
    data = ia.load_data("digits")
    parts = (data.train, data.validation, data.test)
    joined = Split(*(torch.cat([getattr(part, key) for part in parts]) for key in "xy"))
    result = answer("evaluate", merged, "--split", "all")["models"]["composition"]
    assert result == ia.evaluate(ia.Composition.load(merged), joined).to_json()
    assert result["n"] == 1797


def test_of_a_network_trained_elsewhere_nobody_knows_the_data(tmp_path: Path) -> None:
    names = [str(digit) for digit in range(10)]
    state = build("mlp(8)", (1, 8, 8), 10).state_dict()
    module = ia.Module.of(state, model="mlp(8)", rewarded="3", catalogue=names, shape=(1, 8, 8))
    module.save(tmp_path / "3.safetensors")
    run = call("evaluate", tmp_path / "3.safetensors", "--data", "digits", "--json")
    assert "does not say what data it was trained on" in run.stderr
    assert json.loads(run.stdout)["trained_on_this_data"] is None


def test_evaluate_matches_classes_by_name(merged: Path) -> None:
    run = call("evaluate", merged, "--set", "classes=['7', '3']", "--json")
    assert "not the data" in run.stderr
    result = json.loads(run.stdout)
    assert result["trained_on_this_data"] is False
    some = ia.load_data("digits", classes=["7", "3"]).test
    labels = torch.where(some.y == 0, 7, 3)
    expected = ia.evaluate(ia.Composition.load(merged), Split(some.x, labels))
    assert result["models"]["composition"] == expected.to_json()


def test_evaluate_shows_and_draws_the_confusion(merged: Path, tmp_path: Path) -> None:
    picture = tmp_path / "confusion.svg"
    run = call("evaluate", merged, "--confusion", "--figure", picture)
    counts = ia.evaluate(ia.Composition.load(merged), ia.load_data("digits").test).confusion
    rows = [line.split("│") for line in run.stdout.partition("true class by answer")[2].split("\n")]
    shown = [[int(cell) for cell in row[2:-1]] for row in rows if len(row) == 13]
    assert shown == counts.tolist()
    ElementTree.parse(picture)


def test_evaluate_keeps_the_split_of_the_training(tmp_path: Path) -> None:
    """Digits have no test part of their own: another split seed would test on seen samples."""
    out = tmp_path / "bank"
    call("train", out, *TINY, "--partition", "3", "--set", "data_options={seed: 5}")
    result = answer("evaluate", out, "--data", "digits")
    assert result["trained_on_this_data"] is True
    expected = ia.evaluate(ia.Bank.load(out)["3"], ia.load_data("digits", seed=5).test)
    assert result["models"]["3"] == expected.to_json()


def test_class_names_are_no_markup(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = ["[red]", "[/b]"]
    np.savez(tmp_path / "own.npz", x=rng.random((40, 4)), y=[0, 1] * 20, classes=names)
    out = tmp_path / "bank"
    own = ["--data", tmp_path / "own.npz"]
    shown = call("train", out, *own, *TINY[2:]).stdout + call("data", own[1]).stdout
    shown += call("evaluate", out, "--confusion").stdout + call("inspect", out).stdout
    for name in names:
        assert shown.count(name) >= 5


def test_inspect_tells_what_a_path_holds(trained: tuple[Path, Any], merged: Path) -> None:
    module = ia.Bank.load(trained[0])["3-s0"]
    result = answer("inspect", trained[0] / "3-s0.safetensors")
    assert (result["kind"], result["name"], result["rewarded"]) == ("module", "3-s0", ["3"])
    assert result["origin"] == module.origin
    assert result["digest"] == module.digest
    assert result["provenance"] == module.provenance
    assert result["dense_bytes"] == 4 * module.parameters
    survivors = {t["tensor"]: t["nonzero"] for t in result["tensors"]}
    assert sum(survivors.values()) == module.nonzero
    assert survivors["layers.0.weight"] == int(module.mask["layers.0.weight"].sum())

    result = answer("inspect", merged)
    assert (result["kind"], result["operator"], len(result["parts"])) == (
        "composition",
        "logits",
        10,
    )
    assert sum(t["nonzero"] for t in result["tensors"]) == ia.Composition.load(merged).nonzero
    assert [p["name"] for p in result["parts"]] == [f"{c}-s1" for c in range(10)]

    result = answer("inspect", trained[0])
    assert (result["kind"], result["seeds"], len(result["modules"])) == ("bank", [0, 1], 20)
    for path in (merged, trained[0], trained[0] / "3-s0.safetensors"):
        assert "mlp(hidden=[32], dropout=0.5)" in call("inspect", path).stdout


def test_data_shows_every_class(tmp_path: Path) -> None:
    result = answer("data", "digits")
    totals = Counter(dict.fromkeys(result["catalogue"], 0))
    for part in result["counts"].values():
        totals.update(part)
    assert totals == Counter(map(str, load_digits().target))
    assert result["digest"] == ia.load_data("digits").digest
    assert result["digest"] in call("data", "digits").stdout

    table = tmp_path / "own.csv"
    rows = [f"{'ab'[i % 2]},{i},{i * i % 7}" for i in range(40)]
    table.write_text("\n".join(["kind,one,two", *rows]))
    result = answer("data", table, "--set", "target=kind")
    assert (result["catalogue"], result["shape"]) == (["a", "b"], [2])
    assert sum(result["samples"].values()) == 40


def test_data_lists_where_sets_come_from(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    (tmp_path / "mnist.npz").touch()
    cache.mkdir(parents=True)
    (cache / "yeast.npz").touch()
    where = {entry["name"]: entry["where"] for entry in answer("data")["sets"]}
    assert where["digits"] == "embedded"
    assert where["mnist"] == f"folder {tmp_path / 'mnist.npz'}"
    assert where["yeast"] == f"cache {cache / 'yeast.npz'}"
    assert where["cifar10"] == "download from www.cs.toronto.edu"
    assert "fashion_mnist" in call("data").stdout


def test_a_recipe_whose_data_are_no_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("data: [digits]\n")
    assert "error" in refusal("train", tmp_path / "r.yaml", "--dry-run")


def test_flags_override_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("data: digits\nepochs: 7\nsparsity: 0.8\nbatch: 32\n")
    flags = ["--epochs", 9, "--partition", "0+1,2+3", "--seeds", "4,5", "--set", "patience=3"]
    result = answer("train", recipe, "--dry-run", *flags, "--set", "learning-rate=1e-2")
    expected = ia.Recipe(
        epochs=9, sparsity=0.8, batch=32, partition=[["0", "1"], ["2", "3"]], seeds=[4, 5],
        patience=3, learning_rate=0.01,
    )  # fmt: skip
    assert result["recipe"] == expected.resolve(DataSize.of(ia.load_data("digits"))).as_dict()
    assert result["modules"] == 4
    assert answer("train", "--dry-run", "--partition", "blocks(4)")["modules"] == 3
    shown = call("train", recipe, "--dry-run").stdout
    assert yaml.safe_load(shown)["modules"] == 10
    assert list(tmp_path.iterdir()) == [recipe]


def test_how_weights_are_stepped_has_options() -> None:
    flags = ["--optimiser", "sgd(nesterov=true)", "--schedule", "onecycle(0.2)"]
    recipe = answer("train", "--dry-run", *flags, "--batches", "balanced(9)")["recipe"]
    assert recipe["optimiser"] == "sgd(nesterov=True)"
    assert recipe["schedule"] == "onecycle(warmup=0.2)"
    assert recipe["batches"] == "balanced(amount=9)"
    assert "unknown optimiser" in refusal("train", "--dry-run", "--optimiser", "sdg")


def test_a_dry_run_prints_the_settings_that_training_takes(
    trained: tuple[Path, Any], tmp_path: Path
) -> None:
    flags = [*TINY, "--seeds", "0,1", "--learning-rate", 0.01]
    taken = yaml.safe_load((trained[0] / "recipe.yaml").read_text())
    result = answer("train", "--dry-run", *flags)
    data = ia.load_data("digits")
    size = dataclasses.asdict(DataSize.of(data))
    assert (size["rows"], size["features"], size["classes"]) == (len(data.train), 64, 10)
    assert result == {"recipe": taken, "size": size, "modules": 20, "open": []}
    shown = yaml.safe_load(call("train", "--dry-run", *flags).stdout)
    told = f"{len(data.train):,} rows, 64 features, 10 classes"
    assert shown == {**taken, "chosen for": told, "modules": 20}
    # A table of one's own: fewer rows, fewer features, other settings.
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.random((90, 4)), y=[0, 1, 2] * 30)
    own = answer("train", "--dry-run", "--data", tmp_path / "own.npz")
    size = DataSize.of(ia.load_data(tmp_path / "own.npz"))
    expected = ia.Recipe(data=str(tmp_path / "own.npz")).resolve(size)
    assert own["recipe"] == expected.as_dict()
    assert own["recipe"]["negatives"] == "none"
    assert taken["negatives"] != "none"


def test_a_dry_run_says_what_data_that_are_not_here_leave_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    words = ["train", "--dry-run", "--data", "mnist", "--epochs", 3]
    result = answer(*words)
    assert (result["size"], result["modules"]) == (None, None)
    assert {"model", "sparsity", "rounds", "batch", "negatives"} == set(result["open"])
    shown = yaml.safe_load(call(*words).stdout)
    for key in ("modules", *result["open"]):
        assert shown[key] == "unknown until mnist is here"
    assert shown["chosen for"] == "mnist, which is not on this machine"
    assert (shown["epochs"], shown["learning_rate"]) == (3, 0.006)
    # The paper's settings do not wait for the data.
    assert answer(*words, "--preset", "paper")["open"] == []
    assert "chosen for" not in call(*words, "--preset", "paper").stdout


def test_negatives_and_balance_have_flags() -> None:
    flags = ["--negatives", "noise(0.1)+scaled", "--balance", 0.3]
    result = answer("train", "--dry-run", *flags)["recipe"]
    assert (result["negatives"], result["balance"]) == ("noise(amount=0.1) + scaled", 0.3)
    assert answer("train", "--dry-run", "--negatives", "none")["recipe"]["negatives"] == "none"
    assert "did you mean 'noise'" in refusal("train", "out", "--negatives", "nois")
    assert "balance is 2.0" in refusal("train", "out", "--balance", 2)


def test_help_says_what_holds_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    assert "By default auto, by the size of the data" in call("train", "--help").stdout
    assert "By default inlay where that is small, else logits" in call("compose", "-h").stdout


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_recipes_resolve(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    result = answer("train", path, "--dry-run")
    assert result["recipe"] == ia.Recipe.load(path).resolve().as_dict()
    assert result["modules"] == (10 if path.stem == "digits" else None)


@pytest.mark.parametrize("path", MERGES, ids=lambda p: p.stem)
def test_merge_recipes_compose(path: Path, trained: tuple[Path, Any], tmp_path: Path) -> None:
    """As written, on the bank of the tests in place of the demo's."""
    ia.Bank.load(trained[0]).seed(0).save(tmp_path / "demo" / "modules")
    (tmp_path / "recipes").mkdir()
    copy = tmp_path / "recipes" / path.name
    copy.write_text(path.read_text())
    result = answer("compose", copy, "-o", tmp_path / "whole.safetensors")
    assert result["operator"].startswith(path.stem.removeprefix("merge_"))
    assert len(result["parts"]) == 10


def test_digits_recipe_is_the_demos() -> None:
    assert ia.Recipe.load(ROOT / "recipes" / "digits.yaml") == ia.Recipe(**SETTINGS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "out", "--set", "sparcity=0.9"], "did you mean 'sparsity'"),
        (["train", "out", "--set", "patience"], "expected KEY=VALUE"),
        (["train", "out", "--set", "patience=[1"], "not valid YAML"),
        (["train", "out", "--data", "digit"], "did you mean 'digits'"),
        (["train", "out", "--model", "mpl"], "did you mean 'mlp'"),
        (["train", "out", "--engine", "stak"], "did you mean 'stack'"),
        (["train", "out", "--engine", "mlp", "--workers", "2"], "choose 'processes' or 'ray'"),
        (["train", "out", "--engine", "processes", "--address", "auto"], "for engine 'ray'"),
        (["train", "out", "--sparsity", "1.5"], "sparsity is 1.5"),
        (["train", "out", "--seeds", "a"], "seeds is"),
        (["train", "out", "--partition", "0+x"], "'x' is not in the catalogue"),
        (["train", "out", "--set", "data_options={scal: unit}"], "did you mean 'scale'"),
        (["train", "missing.yaml", "out"], "cannot read the recipe missing.yaml"),
        (["train", "out", "--set", "partition=3"], "the partition is 3"),
        (["train", "out", "--set", "data_options={classes: 3}"], "'all' or a list of names"),
        (["data", "mnits"], "did you mean 'mnist'"),
        (["data", "cifar10", "--no-download"], "downloads are switched off"),
        (["inspect", "nowhere.safetensors"], "no such file"),
        (["compose", "nowhere", "-o", "x"], "no such file"),
        (["compose", "nowhere", "-o", "x", "--operator", "som"], "did you mean 'sum'"),
        (["compose", "nowhere", "-o", "x", "--operator", "ties(dens=1)"], "'density'"),
        (["compose", "nowhere", "-o", "x", "--align", "unit"], "unknown alignment 'unit'"),
        (["compose", "none.yaml", "-o", "x"], "cannot read the recipe none.yaml"),
        (["path", "a", "b", "--figure", "x.gif"], "one of .svg, .pdf, .png"),
        (["path", "nowhere", "b"], "no such file"),
        (["compatibility", "a", "--figure", "x.gif"], "one of .svg, .pdf, .png"),
        (["compatibility", "nowhere"], "no such file"),
        (["compact", "nowhere", "-o", "x"], "no such file"),
        (["export", "nowhere", "-o", "x.onnx"], "no such file"),
    ],
)
def test_errors_are_one_clear_line(
    words: list[str], said: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    assert said in refusal(*words)
    assert not list(here.glob("*.*"))


def test_errors_about_files(trained: tuple[Path, Any], merged: Path, tmp_path: Path) -> None:
    folder = trained[0]
    some = ["compose", folder, "-o", tmp_path / "x", "--operator", "sum"]
    assert "choose with --seed" in refusal(*some)
    assert "its seeds: (0, 1)" in refusal("compose", folder, "-o", tmp_path / "x", "--seed", 7)
    assert "did you mean 'test'" in refusal("evaluate", merged, "--split", "tset")
    assert "there is no class" in refusal("evaluate", merged, "--rewarded", "ten")
    np.savez(
        tmp_path / "letters.npz", x=np.random.default_rng(0).random((40, 64)), y=["a", "b"] * 20
    )
    said = refusal("evaluate", merged, "--data", tmp_path / "letters.npz")
    assert "class 'a', which is not in the modules' catalogue" in said
    (tmp_path / "cut.safetensors").write_bytes(merged.read_bytes()[:-5])
    assert "was cut off" in refusal("inspect", tmp_path / "cut.safetensors")
    (tmp_path / "notes.txt").write_text("accuracy: 0.98, measured on Monday")
    for verb in ("inspect", "evaluate"):
        assert "notes.txt: is not a safetensors file" in refusal(verb, tmp_path / "notes.txt")
    for verb in ("compact", "export"):
        said = refusal(verb, folder, "-o", tmp_path / "x.onnx")
        assert "holds a bank: give one of its files" in said
    assert "logits are joined" in refusal("compact", merged, "-o", tmp_path / "x.onnx")
    assert "did you mean 'onnx'" in refusal("export", merged, "-o", tmp_path / "x.onx")
    assert "did you mean 'uint8'" in refusal(
        "export", merged, "-o", tmp_path / "x.onnx", "--inputs", "int8"
    )
    assert "give the file of a module" in refusal("path", merged, merged)
    assert "from 0 to 1" in refusal("evaluate", merged, "--abstain", 2)
    assert "at least two" in refusal("compatibility", folder / "3-s0.safetensors")
    said = refusal("evaluate", merged, "--figure", tmp_path / "confusion.gif")
    assert "one of .svg, .pdf, .png" in said
    said = refusal("evaluate", merged, "--set", "test=0")
    assert "no samples in its test split" in said
    assert not (tmp_path / "x").exists()


def test_entry_point_fails_with_one_line_and_exit_code_1(trained: tuple[Path, Any]) -> None:
    words = ["train", str(trained[0]), *TINY, "--seeds", "2"]
    code = "from intarsia.cli.app import main; main()"
    run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith(f"error: {trained[0]} holds modules of another recipe")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["compose"], ["train", "--dry-run"]])
def test_a_damaged_recipe_is_told_in_one_line(words: list[str], tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("models:\n\t- [")
    out = ["-o", tmp_path / "out"] if words == ["compose"] else []
    assert "is not valid YAML" in refusal(*words, recipe, *out)


def test_diverged_modules_are_named(tmp_path: Path) -> None:
    """A step too large for float32 leaves nothing, and the folder free for a smaller one."""
    out = tmp_path / "out"
    said = refusal("train", out, *TINY, "--partition", "3,8", "--learning-rate", 1e38)
    assert "every module diverged" in said
    call("train", out, *TINY, "--partition", "3,8", "--learning-rate", 0.001)
    assert answer("inspect", out)["diverged"] == []


def test_a_bank_without_its_diverged_modules_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ia.Bank([], diverged=["3", "8"]).save(out)
    assert "module '3' diverged" in call("inspect", out).stderr
    assert answer("inspect", out)["diverged"] == ["3", "8"]
    assert "all of them diverged" in refusal("evaluate", out, "--data", "digits")


def test_data_that_moved_is_given_with_a_flag(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((40, 4))
    before, after = tmp_path / "own.npz", tmp_path / "moved.npz"
    np.savez(before, x=x, y=[0, 1] * 20)
    out = tmp_path / "bank"
    call("train", out, "--data", before, *TINY[2:])
    before.rename(after)
    assert "give it with --data" in refusal("evaluate", out)
    assert "give it with --data" in refusal("train", out / "recipe.yaml", tmp_path / "new")
    assert answer("evaluate", out, "--data", after)["trained_on_this_data"] is True


def test_wrong_usage_is_exit_code_2() -> None:
    said = "the folder is missing: intarsia train"
    assert f"{said} OUT" in call("train", code=2).stderr
    assert f"{said} recipe.yaml OUT" in call("train", "recipe.yaml", code=2).stderr
    assert "expected [RECIPE.yaml] OUT" in call("train", "a", "b", "c", code=2).stderr
    assert "No such option" in call("train", "out", "--epoch", 3, code=2).stderr
    call("compose", "modules", code=2)  # -o is missing
    said = call("compose", "a.yaml", "b", "-o", "x", code=2).stderr
    assert "a recipe names its models itself" in said


def test_the_recipe_of_another_verb_is_told(tmp_path: Path) -> None:
    merge, training = tmp_path / "merge.yaml", tmp_path / "recipe.yaml"
    merge.write_text("merge_method: ties\nmodels: [modules]\n")
    training.write_text("data: digits\nbalance: 0.5\n")
    assert "`intarsia compose`" in refusal("train", merge, tmp_path / "out")
    assert "`intarsia train`" in refusal("compose", training, "-o", tmp_path / "out")


def test_stopping_says_that_the_same_command_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("intarsia.training.train", stopped)
    run = call("train", tmp_path / "out", code=130)
    assert "the same command resumes" in run.stderr


def test_train_is_told_where_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: Any, **given: Any) -> None:
        asked.update(given)
        raise KeyboardInterrupt

    asked: dict[str, Any] = {}
    monkeypatch.setattr("intarsia.training.train", train)
    words = ("--engine", "ray(stack)", "--workers", 3, "--address", "auto")
    call("train", tmp_path / "out", *words, code=130)
    assert [asked[key] for key in ("engine", "workers", "address")] == ["ray(stack)", 3, "auto"]


def test_help_and_version_need_no_torch() -> None:
    expected = {
        "--version": [ia.__version__],
        "train --help": ["Examples:"],
        "evaluate -h": ["Examples:"],
        "compose -h": ["Examples:"],
        "study --help": ["intarsia study"],
        "study run -h": ["intarsia study"],
        "flow --help": ["cumulants", "propagate", "iterate", "fit"],
        "graphs --help": ["scale", "rewire", "train", "modules"],
        "lens --help": ["profile", "classify", "modules"],
        "sweetspot --help": ["show", "fit"],
    }
    shown = run_without_torch(*expected)
    for command, words, said in zip(expected, expected.values(), shown, strict=True):
        assert all(word in said for word in words), command


def test_changes_of_a_base(trained: tuple[Path, Any], tmp_path: Path) -> None:
    start, out = trained[0] / "3-s0.safetensors", tmp_path / "heads"
    words = ("--data", "digits", "--partition", "0+1,2+3", "--epochs", 1, "--sparsity", 0)
    answer("train", out, *words, "--base", start, "--trainable", "head")
    bank = ia.Bank.load(out, quiet=True)
    weight = bank[0].state["layers.1.weight"]
    assert bank[0].nonzero == weight.numel()
    assert bank[0].origin == ia.Base(ia.Module.load(start, quiet=True).state).digest
    result = answer("inspect", out / "0+1.safetensors")
    assert bank[0].origin[:16] in result["base"]
    assert result["base"] in call("inspect", out).stdout.replace("\n", " ")
    (out / "base.safetensors").rename(tmp_path / "elsewhere.safetensors")
    assert "is a change of the base" in refusal("inspect", out)
    moved = tmp_path / "elsewhere.safetensors"
    assert answer("inspect", out, "--base", moved)["base"] == result["base"]
    assert "the base that modules are changes of" in refusal("inspect", moved)
