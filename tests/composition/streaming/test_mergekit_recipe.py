"""mergekit's YAML: the same tensors as mergekit writes, or a reason why not."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import typer
import yaml

import intarsia as ia
from intarsia.cli.app import app
from intarsia.composition.streaming.mergekit_recipe import METHODS, is_mergekit
from intarsia.errors import RecipeError
from small_files import LAYERS, llama_states, read_model, write_model

MODELS = ("one", "two", "zero")  # by name before and after the base
OTHERS = {"one": {"weight": 0.7}, "two": {"weight": 0.5}, "zero": {"weight": -0.2}}
TWO = {name: OTHERS[name] for name in ("one", "two")}
DENSITY = {"density": 0.6}
THINNED = {"one": 0.3, "two": 0.8, "zero": 1.0}

# Of each method some settings, and the models with theirs; those that draw keep everything.
CASES: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "linear": ({}, TWO),
    "linear-sum": ({"normalize": False}, OTHERS),
    "task_arithmetic": ({"lambda": 0.7}, OTHERS),
    "task_arithmetic-normalised": ({"normalize": True, "int8_mask": True}, OTHERS),
    "ties": (DENSITY, OTHERS),
    "ties-each": (DENSITY, {n: {**OTHERS[n], "density": d} for n, d in THINNED.items()}),
    "breadcrumbs-each": ({}, {n: {**OTHERS[n], "density": d} for n, d in THINNED.items()}),
    "ties-sum": ({**DENSITY, "normalize": False, "lambda": 0.5}, OTHERS),
    "dare_linear": ({}, OTHERS),
    "dare_ties": ({}, OTHERS),
    "breadcrumbs": ({**DENSITY, "gamma": 0.1}, OTHERS),
    "breadcrumbs_ties": ({**DENSITY, "gamma": 0.1}, OTHERS),
    "della": ({}, OTHERS),
    "della_linear": ({"normalize": True}, OTHERS),
    "sce": ({"select_topk": 0.5}, {name: {} for name in MODELS}),
    "model_stock": ({}, {name: {} for name in MODELS}),
    "model_stock-filters": ({"filter_wise": True}, {name: {} for name in MODELS}),
    "multislerp": ({}, TWO),
    "karcher": ({"max_iter": 20, "tol": 1e-6}, {name: {} for name in MODELS}),
    "slerp": ({"t": 0.3}, {"zero": {}}),
    "slerp-back": ({"t": 0.3}, {"another": {}}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as a base, and others near it."""
    folder = tmp_path_factory.mktemp("models")
    for name, state in llama_states(*MODELS, "another").items():
        write_model(folder / name, state, shards=2 if name == "two" else 1)
    return folder


def recipe_of(case: str, folder: Path, **more: Any) -> dict[str, Any]:
    parameters, models = CASES[case]
    listed = [{"model": str(folder / n), "parameters": own} for n, own in models.items()]
    recipe = {
        "merge_method": case.partition("-")[0],
        "models": listed,
        "parameters": parameters,
        "dtype": "float32",
    }
    if METHODS[recipe["merge_method"]].origin in ("required", "optional", "first"):  # type: ignore[index]
        recipe["base_model"] = str(folder / "base")
    return recipe | more


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_mergekits_own(
    case: str, folder: Path, tmp_path: Path, library: Callable[[str], ModuleType]
) -> None:
    merge, config, options = (library(f"mergekit.{n}") for n in ("merge", "config", "options"))
    settings = recipe_of(case, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merge.run_merge(
            config.MergeConfiguration.model_validate(settings),
            str(tmp_path / "theirs"),
            options.MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True),
        )
    (tmp_path / "merge.yml").write_text(yaml.safe_dump(settings))
    ia.MergekitRecipe.load(tmp_path / "merge.yml").merge(tmp_path / "ours")
    ours, theirs = read_model(tmp_path / "ours"), read_model(tmp_path / "theirs")
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-5, atol=2e-6)


def test_every_method_is_tried() -> None:
    assert {case.partition("-")[0] for case in CASES} == set(METHODS)


def test_a_base_among_the_models_has_no_change(folder: Path, tmp_path: Path) -> None:
    without = recipe_of("ties", folder)
    listed = {"model": str(folder / "base"), "parameters": {}}
    with_base = without | {"models": [listed, *without["models"]]}
    for name, settings in (("a", without), ("b", with_base)):
        ia.MergekitRecipe.read(settings).merge(tmp_path / name)
    a, b = read_model(tmp_path / "a"), read_model(tmp_path / "b")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_one_slice_of_all_layers_is_all(folder: Path) -> None:
    plain = recipe_of("slerp", folder)
    base, other = str(folder / "base"), str(folder / "zero")
    sources = [{"model": name, "layer_range": [0, LAYERS]} for name in (base, other)]
    sliced = {k: v for k, v in plain.items() if k != "models"} | {"slices": [{"sources": sources}]}
    assert ia.MergekitRecipe.read(sliced) == ia.MergekitRecipe.read(
        plain | {"models": [{"model": base}, {"model": other}]}
    )
    sources[1]["layer_range"] = [0, LAYERS - 1]
    with pytest.raises(RecipeError, match="only all layers can be joined"):
        ia.MergekitRecipe.read(sliced)
    with pytest.raises(RecipeError, match="slices puts layers"):
        ia.MergekitRecipe.read(sliced | {"slices": [{"sources": sources}] * 2})


def test_a_slice_may_hold_the_base(folder: Path, tmp_path: Path) -> None:
    plain = recipe_of("ties", folder)
    sources = [
        {"model": str(folder / name), "layer_range": [0, LAYERS], "parameters": own}
        for name, own in {"base": {}, **OTHERS}.items()
    ]
    sliced = {k: v for k, v in plain.items() if k != "models"} | {"slices": [{"sources": sources}]}
    assert ia.MergekitRecipe.read(sliced) == ia.MergekitRecipe.read(plain)
    sliced["merge_method"], sliced["parameters"] = "sce", {}
    sliced["slices"] = [{"sources": [str(folder / "one")]}]
    with pytest.raises(RecipeError, match=r"layer_range of .*one is None"):
        ia.MergekitRecipe.read(sliced)


@pytest.mark.parametrize(
    ("case", "models"),
    [("model_stock", ("./base", "one", "two")), ("linear", ("one", "two", "two/../one"))],
)
def test_one_model_by_two_names_is_refused(
    case: str, models: tuple[str, ...], folder: Path
) -> None:
    """It would count twice, or a base as a model that changed nothing."""
    own = {"weight": 1} if case == "linear" else {}
    listed = [{"model": name, "parameters": own} for name in models]
    settings = recipe_of(case, folder) | {"models": listed, "parameters": {}}
    if case != "linear":
        settings["base_model"] = "base"
    with pytest.raises(RecipeError, match="are one model"):
        ia.MergekitRecipe.read(settings, folder)


def test_one_tokenizer_may_be_named(folder: Path, tmp_path: Path) -> None:
    for name, state in llama_states("one").items():
        write_model(tmp_path / name, state)
        (tmp_path / name / "tokenizer.json").write_text("{}")
    models = [{"model": "one", "parameters": {"weight": 1}}]
    settings = {"merge_method": "ties", "models": models, "base_model": "base"}
    settings["tokenizer_source"] = "base"
    assert ia.MergekitRecipe.read(settings, tmp_path).base == tmp_path / "base"
    (tmp_path / "one" / "tokenizer.json").write_text('{"other": 1}')
    with pytest.raises(RecipeError, match="rows of embeddings"):
        ia.MergekitRecipe.read(settings, tmp_path)


BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "which of mergekit's is not here": ("ties", {"merge_method": "nearswap"}),
    "did you mean 'ties'": ("ties", {"merge_method": "tiess"}),
    "needs base_model": ("ties", {"base_model": None}),
    "did you mean 'density'": ("ties", {"parameters": {"densitys": 1}}),
    "differs from layer to layer": ("ties", {"parameters": {"density": [0, 1]}}),
    "density is 'x': expected a number": ("ties", {"parameters": {"density": "x"}}),
    "weight is not given": ("ties", {"models": [{"model": "one"}]}),
    "not rescaled here": ("ties", {"parameters": {"rescale": True}}),
    "not normalised here": ("dare_ties", {"parameters": {"normalize": True}}),
    "normalize is 1: expected true": ("ties", {"parameters": {"normalize": 1}}),
    "nothing is fetched": ("ties", {"base_model": "organisation/model"}),
    "adapter.*merge_and_unload.*from_adapter": ("sce", {"models": [{"model": "one+adapter"}]}),
    "there is no model 'xxx": ("sce", {"models": [{"model": "x" * 5000}]}),
    "several methods": ("ties", {"modules": {"text": {}}}),
    "another tokenizer": ("ties", {"chat_template": "auto"}),
    "moved from one tokenizer": ("ties", {"tokenizer_source": "union"}),
    "dtype is 4": ("ties", {"dtype": 4}),
    "one for all": (
        "breadcrumbs",
        {"models": [{"model": n, "parameters": {"weight": 1, "gamma": g}}
                    for n, g in (("one", 0.01), ("two", 0.02))]},
    ),
    "slerp joins base_model and one other": (
        "slerp",
        {"models": [{"model": "one"}, {"model": "two"}]},
    ),
    "did you mean 'merge_method'": ("ties", {"merge_methods": "ties"}),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_what_is_not_ours_is_refused_with_its_reason(message: str, folder: Path) -> None:
    case, changes = BAD[message]
    with pytest.raises(RecipeError, match=message):
        ia.MergekitRecipe.read(recipe_of(case, folder, **changes), folder)


def test_recipes_for_models_are_told_from_those_for_modules(folder: Path, tmp_path: Path) -> None:
    path = folder / "recipe.yml"
    for text, theirs in {
        "models: [one, two]\nmerge_method: karcher": True,
        "models: [one/model.safetensors]": True,
        "models: [one+adapter]\nmerge_method: linear": True,
        "models: [0+1.safetensors]": False,
        "models: [a]\nbase_model: base": True,
        "models: [a]\ndtype: float32": True,
        "slices: []": True,
        "models: [a.safetensors]\nbase_model: origin": False,
        "models: [modules/]": False,
        "models: 3": False,
        f"models: [{'x' * 5000}]": False,
    }.items():
        path.write_text(text)
        assert is_mergekit(path) is theirs, text


def test_the_command_line_takes_mergekits_recipe(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mergekit.yml"
    recipe.write_text(json.dumps(recipe_of("ties", folder)))
    words = ["compose", str(recipe), "-o", str(tmp_path / "out"), "--json"]
    app([*words, "--shard-size", "2k"], standalone_mode=False)
    result = json.loads(capsys.readouterr().out)
    assert result["models"] == ["one", "two", "zero"]
    assert len(result["files"]) > 1
    ia.MergekitRecipe.load(recipe).merge(tmp_path / "python")
    ours, same = read_model(tmp_path / "out"), read_model(tmp_path / "python")
    assert ours.keys() == same.keys()
    assert all(torch.equal(ours[n], same[n]) for n in same)
    with pytest.raises(typer.BadParameter, match="takes no --operator"):
        app([*words, "--operator", "sum"], standalone_mode=False)
    for name in ("merged.safetensors", "merged.GGUF"):
        assert app([*words, "-o", str(tmp_path / name)], standalone_mode=False) == 1
        assert "a merge of models writes a folder" in capsys.readouterr().out
        assert not (tmp_path / name).exists()
