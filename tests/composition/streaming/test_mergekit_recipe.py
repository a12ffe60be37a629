"""mergekit's YAML: the same tensors as mergekit writes, or a reason why not."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import typer

import intarsia as ia
from intarsia.cli.app import app
from intarsia.composition.streaming.mergekit_recipe import METHODS, is_mergekit
from intarsia.errors import FileError, FileWarning, RecipeError, RecipeWarning
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


def both_merged(
    settings: dict[str, Any], folder: Path, library: Callable[[str], ModuleType]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The tensors that we write, and those that mergekit does."""
    merge, config, options = (library(f"mergekit.{n}") for n in ("merge", "config", "options"))
    (folder / "merge.yml").write_text(json.dumps(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merge.run_merge(
            config.MergeConfiguration.model_validate(settings),
            str(folder / "theirs"),
            options.MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True),
        )
    ia.MergekitRecipe.load(folder / "merge.yml").merge(folder / "ours")
    ours, theirs = read_model(folder / "ours"), read_model(folder / "theirs")
    assert ours.keys() == theirs.keys()
    return ours, theirs


@pytest.mark.parametrize("case", CASES)
def test_the_result_is_mergekits_own(
    case: str, folder: Path, tmp_path: Path, library: Callable[[str], ModuleType]
) -> None:
    ours, theirs = both_merged(recipe_of(case, folder), tmp_path, library)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-5, atol=2e-6)


PUBLISHED = [
    {"filter": "self_attn", "value": [0, 0.5, 0.3, 0.7, 1]},
    {"filter": "mlp", "value": [1, 0.5, 0.7, 0.3, 0]},
    {"value": 0.5},
]
HALVES = [{"filter": "mlp", "value": [0.2, 0.9]}, {"filter": "*", "value": 0.5}]
FALLING, RISING = [0.9, 0.4, 0.3], [0.1, 0.6, 0.7]

# Of each method the settings for all, those for a slice, and the models with their own.
VARIED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]] = {
    "slerp": ({"t": PUBLISHED}, {}, {"base": {}, "zero": {}}),
    "slerp-back": ({"t": PUBLISHED}, {}, {"another": {}, "base": {}}),
    "slerp-slice": ({"t": 0.1}, {"t": PUBLISHED[:2]}, {"base": {}, "zero": {}}),
    "linear": ({}, {}, {"one": {"weight": FALLING}, "two": {"weight": RISING}}),
    "linear-shared": (
        {"weight": [1, 0.5]},
        {"weight": [{"filter": "layers.2.", "value": "3e-1"}]},
        {"one": {"weight": [{"filter": "mlp", "value": RISING}]}, "two": {}},
    ),
    "task_arithmetic": (
        {"weight": 0.3, "lambda": [{"filter": "norm", "value": 2}, {"value": [0.2, 1, 0.4]}]},
        {"weight": 0.25},
        {"base": {}, "one": {"weight": FALLING}, "two": {}, "zero": {"weight": HALVES}},
    ),
    "ties": (
        {"density": HALVES, "normalize": [{"filter": "attn", "value": False}, {"value": True}]},
        {},
        {"base": {}, "one": {"weight": FALLING, "density": RISING}, "two": {"weight": HALVES}},
    ),
    "ties-none": ({}, {}, {"base": {}, "one": {"weight": [0, 1]}, "two": {"weight": [0, 0, 2]}}),
    "breadcrumbs": (
        {"weight": 0.5, "gamma": [0.01, 0.1]},
        {},
        {"base": {}, "one": {"density": FALLING}, "zero": {"density": HALVES, "weight": RISING}},
    ),
    "dare_linear": ({"weight": FALLING}, {}, {"base": {}, "one": {}, "two": {"weight": HALVES}}),
    "della": ({"weight": FALLING}, {}, {"base": {}, "one": {}, "two": {"weight": HALVES}}),
    "sce": ({"select_topk": FALLING}, {}, {"base": {}, "one": {}, "two": {}, "zero": {}}),
    "model_stock": (
        {"filter_wise": [{"filter": "mlp", "value": [True, False]}]},
        {},
        {"base": {}, "one": {}, "two": {}},
    ),
    "multislerp": ({"weight": FALLING}, {}, {"base": {}, "one": {}, "two": {"weight": HALVES}}),
    "karcher": ({"max_iter": [2, 8], "tol": "1e-6"}, {}, {"one": {}, "two": {}, "zero": {}}),
}


def sliced_recipe_of(case: str, folder: Path, *spans: tuple[int, int]) -> dict[str, Any]:
    """A recipe in slices, as most that are published; only the first has its settings."""
    common, own, models = VARIED[case]
    slices = [
        {
            "sources": [
                {"model": str(folder / name), "layer_range": list(span), "parameters": given}
                for name, given in models.items()
            ],
            "parameters": own if span[0] == 0 else {},
        }
        for span in spans or [(0, LAYERS)]
    ]
    return {
        "slices": slices,
        "merge_method": case.partition("-")[0],
        "parameters": common,
        "dtype": "float32",
        **({"base_model": str(folder / "base")} if "base" in models else {}),
    }


@pytest.mark.parametrize("spans", [(), ((0, 1), (1, LAYERS))], ids=["one", "two"])
@pytest.mark.parametrize("case", VARIED)
def test_settings_differ_by_tensor_as_in_mergekit(
    case: str,
    spans: tuple[tuple[int, int], ...],
    folder: Path,
    tmp_path: Path,
    library: Callable[[str], ModuleType],
) -> None:
    ours, theirs = both_merged(sliced_recipe_of(case, folder, *spans), tmp_path, library)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-6, atol=1e-6)


# In 8 bits many changes are equally large, of which a trim may keep either, and angles are rough.
ROUGH = ("ties", "breadcrumbs", "sce", "model_stock")


@pytest.mark.parametrize("case", VARIED)
def test_settings_differ_by_tensor_in_half_precision(
    case: str, tmp_path: Path, library: Callable[[str], ModuleType]
) -> None:
    states = llama_states(*MODELS, "another")
    for name, state in states.items():
        write_model(tmp_path / name, {key: tensor.bfloat16() for key, tensor in state.items()})
    settings = sliced_recipe_of(case, tmp_path) | {"dtype": "bfloat16"}
    ours, theirs = both_merged(settings, tmp_path, library)
    assert all(tensor.dtype == torch.bfloat16 for tensor in ours.values())
    a, b = (torch.cat([t[name].flatten() for name in theirs]) for t in (ours, theirs))
    near = torch.isclose(a, b, rtol=2**-6, atol=2**-6)  # they round every step, and we the result
    assert (~near).sum() <= (0.02 * len(a) if case in ROUGH else 0)


def test_settings_of_models_go_over_all_layers(
    folder: Path, tmp_path: Path, library: Callable[[str], ModuleType]
) -> None:
    settings = sliced_recipe_of("linear", folder)
    sources = settings.pop("slices")[0]["sources"]
    settings["models"] = [{k: v for k, v in s.items() if k != "layer_range"} for s in sources]
    ours, theirs = both_merged(settings, tmp_path, library)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-6, atol=1e-6)


def test_a_base_that_is_in_no_slice_is_not_joined(
    folder: Path, tmp_path: Path, library: Callable[[str], ModuleType]
) -> None:
    settings = sliced_recipe_of("linear", folder) | {"base_model": str(folder / "base")}
    ours, theirs = both_merged(settings, tmp_path, library)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-6, atol=1e-6)


def test_the_operator_of_a_tensor_is_read_off_the_recipe(folder: Path) -> None:
    recipe = ia.MergekitRecipe.read(sliced_recipe_of("slerp", folder))
    assert recipe.operator == {"name": "slerp", "t": 0.5}
    ts = [recipe.by_tensor[f"model.layers.{i}.mlp.up_proj.weight"]["t"] for i in range(LAYERS)]
    assert ts == pytest.approx(
        np.interp(np.linspace(0, 4, LAYERS), range(5), [1, 0.5, 0.7, 0.3, 0])
    )
    assert "lm_head.weight" not in recipe.by_tensor


def test_a_merge_by_tensor_goes_on_and_is_another_with_other_settings(
    folder: Path, tmp_path: Path
) -> None:
    settings, out = sliced_recipe_of("slerp", folder), tmp_path / "out"
    made = ia.MergekitRecipe.read(settings).merge(out, shard_size="2k")
    before = read_model(out)
    assert made.operators > LAYERS
    (out / made.files[0]).unlink()
    with pytest.warns(FileWarning, match="00001.*made again"):
        again = ia.MergekitRecipe.read(settings).merge(out, shard_size="2k")
    assert again.kept == len(made.files) - 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in read_model(out).items())
    settings["parameters"]["t"] = [{"filter": "mlp", "value": [1, 0]}, {"value": 0.5}]
    with pytest.raises(FileError, match="holds another merge"):
        ia.MergekitRecipe.read(settings).merge(out, shard_size="2k")


def test_filters_that_change_nothing_are_noted(folder: Path) -> None:
    settings = recipe_of("slerp", folder)
    for idle in (
        [{"filter": "self_atn", "value": 0.2}, {"value": 0.5}],
        [{"value": 0.5}, {"filter": "self_attn", "value": 0.2}],
    ):
        settings["parameters"] = {"t": idle}
        with pytest.warns(RecipeWarning, match=r"filter 'self_att?n' of t changes nothing"):
            assert ia.MergekitRecipe.read(settings).by_tensor == {}


def test_layers_that_cannot_be_counted_take_no_gradient(tmp_path: Path) -> None:
    state = llama_states("zero")
    towers = {f"vision.{i}.weight": torch.ones(2) for i in range(2)}
    for name in ("base", "zero"):
        write_model(tmp_path / name, state[name] | towers)
    settings = recipe_of("slerp", tmp_path) | {"parameters": {"t": [0, 1]}}
    with pytest.raises(RecipeError, match=r"t is \[0, 1\].*layers of one stack"):
        ia.MergekitRecipe.read(settings)
    settings["parameters"] = {"t": [{"filter": "vision", "value": 0}, {"value": 0.5}]}
    assert len(ia.MergekitRecipe.read(settings).by_tensor) == len(towers)


def test_slices_that_move_layers_are_refused(folder: Path) -> None:
    for spans, message in {
        ((0, 2),): "layer_range of .*base is .0, 2.: only all layers",
        ((0, 2), (1, LAYERS)): "none is moved, left out or repeated",
        ((2, LAYERS), (0, 2)): "only all layers",
        ((0, 2), (3, LAYERS)): "only all layers",
        ((0, 0), (0, LAYERS)): "only all layers",
    }.items():
        with pytest.raises(RecipeError, match=message):
            ia.MergekitRecipe.read(sliced_recipe_of("slerp", folder, *spans))
    settings = sliced_recipe_of("slerp", folder, (0, 2), (2, LAYERS))
    settings["slices"][1]["sources"].pop()
    with pytest.raises(RecipeError, match="slices are of different models"):
        ia.MergekitRecipe.read(settings)


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
    with pytest.raises(RecipeError, match="end at layers 4, 3: expected the same"):
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
    "density has a gradient of no values": ("ties", {"parameters": {"density": []}}),
    "density is 'x': .* or several": ("ties", {"parameters": {"density": [0, "x"]}}),
    "density is .0, 1.: expected a number": ("ties", {"parameters": {"density": [[0, 1], 1]}}),
    "density has 0.5 beside conditions": (
        "ties",
        {"parameters": {"density": [{"filter": "mlp", "value": 1}, 0.5]}},
    ),
    "density has {'filter': 'mlp'} beside": (
        "ties",
        {"parameters": {"density": {"filter": "mlp"}}},
    ),
    "a condition of density.*did you mean 'filter'": (
        "ties",
        {"parameters": {"density": [{"filters": "mlp", "value": 1}]}},
    ),
    "a filter of density is 3": (
        "ties",
        {"parameters": {"density": [{"filter": 3, "value": 1}]}},
    ),
    "weight is not given for tensor 'lm_head.weight'": (
        "ties",
        {"models": [{"model": "one"}], "parameters": {"weight": {"filter": "mlp", "value": 1}}},
    ),
    "slices is 3: expected a list": ("ties", {"models": None, "slices": 3}),
    "beside models": ("ties", {"slices": [{"sources": ["one"]}]}),
    "density is 'x': expected a number": ("ties", {"parameters": {"density": "x"}}),
    "weight is not given for tensor '.*' of model 'one'": ("ties", {"models": [{"model": "one"}]}),
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
