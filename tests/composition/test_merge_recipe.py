"""Merges from YAML: the composition that Python makes, and an error for what cannot be used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from intarsia.composition import Composition, compose
from intarsia.composition.merge_recipe import METHODS, MergeRecipe
from intarsia.data import Scaling, Split, load_data
from intarsia.errors import CompositionError, DataError, FileError, RecipeError
from intarsia.files import digest_of
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Module, grown

CATALOGUE = tuple("0123456789")
SHAPE = (1, 8, 8)
X = torch.randint(0, 17, (20, 64), generator=torch.Generator().manual_seed(1)).float()


def part(name: str, seed: int = 0) -> Module:
    """A module of digits with weights of its own generator, half of them pruned."""
    network = initialise("mlp(12)", SHAPE, 10, seed)
    origin = digest_of("origin", network.state_dict())
    generator = torch.Generator().manual_seed(100 * seed + ord(name[0]))
    state, mask = dict(network.state_dict()), {}
    for key, _ in network.named_parameters():
        mask[key] = torch.rand(state[key].shape, generator=generator) < 0.5
        moved = state[key] + 0.1 * torch.randn(state[key].shape, generator=generator)
        state[key] = torch.where(mask[key], moved, 0)
    return Module(
        name=name,
        state=state,
        mask=mask,
        rewarded=(name[0],),
        catalogue=CATALOGUE,
        architecture=Architecture.of("mlp(12)", SHAPE, 10),
        scaling=Scaling("unit", torch.tensor(0.0), torch.tensor(1 / 16)),
        temperature=5.0,
        origin=origin,
        provenance={
            "seed": seed,
            "recipe": {"data": "digits", "data_options": {"seed": 3}},
        },
    )


PARTS = [part(name) for name in "0123"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, a bank of two and a composition, four modules together."""
    PARTS[0].save(tmp_path / "a.safetensors")
    Bank(PARTS[1:3]).save(tmp_path / "pair")
    compose([PARTS[3]]).save(tmp_path / "nested" / "three.safetensors")
    return tmp_path


def written(folder: Path, text: str) -> MergeRecipe:
    path = folder / "merge.yaml"
    path.write_text(text)
    return MergeRecipe.load(path)


def answers(merged: Composition) -> torch.Tensor:
    with torch.no_grad():
        return merged(X)


MODELS = "models: [a.safetensors, pair, nested/three.safetensors]\n"


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("", "auto"),
        ("merge_method: sum\n", "sum"),
        ("merge_method: logits\n", "logits"),
        ("merge_method: inlay\n", "inlay"),
        ("merge_method: ties(density=0.3)\n", "ties(density=0.3)"),
        ("merge_method: {name: ties, density: 0.3}\n", "ties(density=0.3)"),
        ("merge_method: ties\nparameters: {density: 0.3}\n", "ties(density=0.3)"),
        ("merge_method: ties\nbase_model: zero\n", "ties(base='zero')"),
        ("merge_method: task_arithmetic\nparameters: {lambda: 0.7}\n", "task_arithmetic(0.7)"),
        (
            "merge_method: task_arithmetic\nparameters: {weight: 0.5}\nbase_model: origin\n",
            "task_arithmetic(weights=0.5)",
        ),
        ("merge_method: linear\n", "mean"),
        (
            "merge_method: linear\nparameters: {normalize: false, weight: 2}\n",
            "weighted(weights=2.0)",
        ),
        (
            "merge_method: dare_ties\nparameters: {density: 0.6, lambda: 0.5}\n",
            "dare(density=0.6, consensus='ties', preset='mergekit', scale=0.5)",
        ),
        (
            "merge_method: dare_linear\nparameters: {density: 0.6}\n",
            "dare(density=0.6, preset='mergekit')",
        ),
    ],
)
def test_a_recipe_makes_what_python_makes(folder: Path, text: str, operator: str) -> None:
    merged = written(folder, text + MODELS).compose()
    assert [module.name for module in merged.parts] == list("0123")
    expected = compose(PARTS, operator)
    assert operator != "auto" or merged.operator.name == "inlay"
    if operator == "mean":  # four equal weights, normalised: 1/4 each is exact
        torch.testing.assert_close(answers(merged), answers(expected))
    else:
        assert torch.equal(answers(merged), answers(expected))


def test_weights_of_a_model_hold_for_all_its_modules(folder: Path) -> None:
    text = (
        "merge_method: weighted\nmodels:\n"
        "- model: a.safetensors\n  parameters: {weight: 0.25}\n"
        "- model: pair\n  parameters:\n    weight: -2\n"
        "- nested/three.safetensors\n"
    )
    merged = written(folder, text).compose()
    assert merged.operator.arguments["weights"] == {"0": 0.25, "1": -2, "2": -2, "3": 1.0}
    # By hand: the layer is the weighted sum of the parts' layers.
    key = "layers.0.weight"
    expected = sum(w * m.state[key] for w, m in zip((0.25, -2, -2, 1.0), PARTS, strict=True))
    assert merged.joined is not None
    torch.testing.assert_close(merged.joined.state[key], expected)


def test_a_weight_may_be_given_for_a_name_that_reads_as_a_number(folder: Path) -> None:
    text = MODELS + "merge_method: weighted\nparameters: {weights: {2: 0.5}}\n"
    merged = written(folder, text).compose()
    assert torch.equal(answers(merged), answers(compose(PARTS, "weighted(weights={'2': 0.5})")))


def test_weight_under_parameters_holds_for_models_without_their_own(folder: Path) -> None:
    text = (
        "merge_method: weighted\nparameters: {weight: 3}\n"
        "models:\n- {model: a.safetensors, parameters: {weight: 1}}\n- model: pair\n"
    )
    merged = written(folder, text).compose()
    assert merged.operator.arguments["weights"] == {"0": 1, "1": 3, "2": 3}
    left = written(folder, text + "without: ['0']").compose()
    assert left.operator.arguments["weights"] == {"1": 3, "2": 3}


def test_a_setting_that_all_models_share_is_the_operators(folder: Path) -> None:
    text = (
        "merge_method: ties\nmodels:\n"
        "- {model: a.safetensors, parameters: {density: 0.4, weight: 0.5}}\n"
        "- {model: pair, parameters: {density: 0.4, weight: 0.5}}\n"
    )
    merged = written(folder, text).compose()
    expected = compose(PARTS[:3], "ties(density=0.4, weights=0.5)")
    assert torch.equal(answers(merged), answers(expected))
    unlike = text.replace("pair, parameters: {density: 0.4", "pair, parameters: {density: 0.6")
    with pytest.raises(RecipeError, match=r"density 0\.4, 0\.6: it is one for all"):
        written(folder, unlike).resolve()


def test_modules_can_be_left_out(folder: Path) -> None:
    merged = written(folder, MODELS + "without: [1, '3']\n").compose()
    assert torch.equal(answers(merged), answers(compose([PARTS[0], PARTS[2]])))
    with pytest.raises(CompositionError, match="cannot remove '7'"):
        written(folder, MODELS + "without: ['7']\n").compose()


def test_a_folder_of_several_seeds_needs_one(tmp_path: Path) -> None:
    bank = Bank([part("0-s0"), part("1-s0"), part("0-s1", 1), part("1-s1", 1)])
    bank.save(tmp_path / "bank")
    with pytest.raises(RecipeError, match="choose with --seed, or seed in a recipe"):
        written(tmp_path, "models: [bank]\nmerge_method: sum").compose()
    merged = written(tmp_path, "models: [bank]\nmerge_method: sum\nseed: 1").compose()
    assert torch.equal(answers(merged), answers(compose(bank.seed(1), "sum")))
    for method in ("auto", "logits"):  # those of several origins add up all the same
        both = written(tmp_path, f"models: [bank]\nmerge_method: {method}").compose()
        assert len(both.parts) == 4
    aligned = written(tmp_path, "models: [bank]\nalign: weights").compose()
    assert aligned.operator.name == "sum"
    assert torch.equal(answers(aligned), answers(compose(bank, "sum", align="weights")))


def test_samples_are_those_that_training_held_out(folder: Path) -> None:
    merged = written(folder, MODELS + "merge_method: logits\nsamples: digits\n").compose()
    held = load_data("digits", seed=3).validation  # the seed that the modules were split with
    assert merged.samples is not None
    assert torch.equal(merged.samples.x, held.x)
    assert torch.equal(merged.samples.y, held.y)
    other = written(
        folder, MODELS + "samples: {data: digits, split: train, rows: 30, options: {seed: 1}}\n"
    ).compose()
    train = load_data("digits", seed=1).train
    rows = torch.arange(30) * len(train) // 30
    assert other.samples is not None
    assert torch.equal(other.samples.x, train.x[rows])


def test_labels_of_samples_are_matched_by_name(folder: Path) -> None:
    """Other data may have other classes, in another order."""
    import numpy as np

    x = np.random.default_rng(0).random((60, 8, 8)).astype(np.float32)
    names = np.array(["7", "zebra", "2"])[np.arange(60) % 3]
    np.savez(folder / "own.npz", x=x, y=names)
    merged = written(folder, MODELS + "samples: {data: own.npz, split: train}\n").compose()
    assert merged.samples is not None
    train = load_data(folder / "own.npz").train
    catalogue = load_data(folder / "own.npz").catalogue
    expected = [{"7": 7, "2": 2, "zebra": -1}[catalogue[i]] for i in train.y.tolist()]
    assert merged.samples.y.tolist() == expected
    np.savez(folder / "own.npz", x=x, y=names)
    with pytest.raises(DataError, match="no samples in its validation part"):
        written(folder, MODELS + "samples: {data: own.npz, options: {validation: 0}}\n").compose()


def test_modules_of_several_catalogues_grow_to_all_classes(folder: Path) -> None:
    """A file of another team that knows a class of its own: refused, unless all are to grow."""
    zebra = replace(
        part("9"), name="zebra", rewarded=("zebra",), catalogue=(*CATALOGUE[1:], "zebra")
    )
    zebra.save(folder / "zebra.safetensors")
    text = "models: [a.safetensors, pair, zebra.safetensors]\n"
    with pytest.raises(CompositionError, match=r"its catalogue is .* compose --grow"):
        written(folder, text).compose()
    merged = written(folder, text + "grow: true\n").compose()
    classes = (*CATALOGUE, "zebra")
    expected = compose([grown(module, classes) for module in (*PARTS[:3], zebra)])
    assert merged.catalogue == classes
    assert torch.equal(answers(merged), answers(expected))


def test_options_reach_the_composition(folder: Path) -> None:
    text = (
        MODELS + "merge_method: logits\nsamples: {data: digits, rows: 60}\n"
        "calibrate: true\nrecalibrate: false\n"
    )
    merged = written(folder, text).compose()
    held = load_data("digits", seed=3).validation
    rows = torch.arange(60) * len(held) // 60
    expected = compose(PARTS, "logits", samples=Split(held.x[rows], held.y[rows]), calibrate=True)
    assert merged.report["calibration"] == expected.report["calibration"]
    assert merged.options.recalibrate is False
    assert torch.equal(answers(merged), answers(expected))


def test_a_resolved_recipe_is_its_own_resolution_and_survives_yaml(folder: Path) -> None:
    text = (
        "merge_method: dare_ties\nmodels:\n- {model: a.safetensors, parameters: {weight: 0.5}}\n"
        "- pair\nparameters: {density: 0.7}\nbase_model: origin\nsamples: digits\n"
    )
    recipe = written(folder, text).resolve()
    assert recipe.merge_method == {
        "name": "dare", "preset": "mergekit", "consensus": "ties", "density": 0.7, "base": "origin",
    }  # fmt: skip
    assert recipe.resolve() == recipe
    (folder / "again.yaml").write_text(yaml.safe_dump(recipe.as_dict()))
    again = MergeRecipe.load(folder / "again.yaml")
    assert torch.equal(answers(again.compose()), answers(recipe.compose()))


@pytest.mark.parametrize("method", METHODS)
def test_mergekits_names_are_known_operators(method: str) -> None:
    assert method not in Composition([PARTS[0]]).operator.name
    MergeRecipe(merge_method=method, models=["a"]).resolve()


BAD = {
    "merge_methode: sum": "did you mean 'merge_method'",
    "- a\n": "`key: value` lines, got list",
    "models: [": "not valid YAML",
    "": "models is (): expected a list of paths",
    "merge_method: sum": "models is (): expected a list of paths",
    "models: a.safetensors": "models is 'a.safetensors'",
    "models: [3]": "models has 3",
    "models: [{path: a}]": "expected a path, or {model: path",
    "models: [{model: a, parameter: {}}]": "did you mean 'parameters'",
    "models: [{model: a, parameters: 3}]": "must be a mapping",
    "merge_method: tis\nmodels: [a]": "did you mean 'ties'",
    "merge_method: dare_tie\nmodels: [a]": "did you mean 'dare_ties'",
    "merge_method: nearswap\nmodels: [a]": "unknown merge_method 'nearswap'",
    "merge_method: 5\nmodels: [a]": "cannot read the operator '5'",
    "merge_method: ties(densty=1)\nmodels: [a]": "did you mean 'density'",
    "merge_method: ties\nmodels: [a]\nparameters: {densty: 1}": "did you mean 'density'",
    "merge_method: mean\nmodels: [{model: a, parameters: {weight: 2}}]": (
        "operator 'mean' has no setting 'weight'"
    ),
    "models: [a]\nparameters: 3": "parameters is 3",
    "merge_method: sum\nmodels: [a]\nbase_model: origin": "sum measures from no base",
    "models: [a]\nbase_model: origin": "merge_method is not given",
    "models: [a]\nparameters: {density: 1}": "merge_method is not given",
    "models: [{model: a, parameters: {weight: 2}}]": "merge_method is not given",
    "merge_method: ties\nmodels: [a]\nbase_model: llama": "base_model is 'llama'",
    "models: [a]\nseed: one": "seed is 'one'",
    "models: [a]\nwithout: '3'": "without is '3'",
    "models: [a]\nalign: wights": "did you mean 'weights'",
    "models: [a]\nrecalibrate: 1": "recalibrate is 1",
    "models: [a]\ngrow: 1": "grow is 1",
    "models: [a]\nsamples: 3": "samples is 3",
    "models: [a]\nsamples: {dta: digits}": "expected a data set",
    "models: [a]\nsamples: {data: digits, row: 3}": "did you mean 'rows'",
    "models: [a]\nsamples: {data: digits, rows: 0}": "rows is 0",
    "models: [a]\nsamples: {data: digits, split: val}": "unknown split 'val'",
    "models: [a]\nsamples: {data: digits, options: {sed: 1}}": "did you mean 'seed'",
}


@pytest.mark.parametrize(("text", "said"), BAD.items())
def test_every_bad_value_is_named(folder: Path, text: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        written(folder, text).compose()
    assert said in str(caught.value)


def test_data_and_files_that_are_not_there_are_named(folder: Path) -> None:
    with pytest.raises(DataError, match="did you mean 'digits'"):
        written(folder, "models: [a.safetensors]\nsamples: digit").compose()
    with pytest.raises(FileError, match="no such file"):
        written(folder, "models: [nowhere]").compose()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*none\.yaml"):
        MergeRecipe.load(tmp_path / "none.yaml")


def test_plain_values_make_a_recipe(folder: Path) -> None:
    settings: dict[str, Any] = {"models": [str(folder / "pair")], "merge_method": "logits"}
    merged = MergeRecipe.read(settings).compose()
    assert torch.equal(answers(merged), answers(compose(PARTS[1:3], "logits")))


def test_a_name_that_no_system_takes_is_refused(folder: Path) -> None:
    with pytest.raises(FileError):
        written(folder, f"models: [{'y' * 5000}]").compose()
