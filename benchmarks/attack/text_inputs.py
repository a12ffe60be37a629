"""Recipes in YAML, and specs: names with settings as people type them."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch

from benchmarks.attack import mutations
from benchmarks.attack.module_inputs import originals
from benchmarks.attack.surface import Input, Maker, Surface
from intarsia.artifacts import kind_of
from intarsia.cli.arguments import assignments, read_recipe
from intarsia.cli.common_options import read_target
from intarsia.cli.describe import describe_plan
from intarsia.composition import OPERATORS, Composition
from intarsia.composition.merge_recipe import MergeRecipe
from intarsia.data import partition
from intarsia.data.negatives import read_negatives
from intarsia.data.partitions import read_sets
from intarsia.models import MODELS, build
from intarsia.modules import Module
from intarsia.objectives import OBJECTIVES, objective
from intarsia.pruning import PRUNINGS
from intarsia.training import Recipe

TRAINING: dict[str, Any] = {
    **{
        "preset": "paper",
        "data": "digits",
        "data_options": {"seed": 1, "classes": ["0", "1", "2"]},
    },
    **{"model": "mlp(8)", "objective": "me", "partition": [["0"], ["1", "2"]], "seeds": [0, 1]},
    **{"pruning": "magnitude", "sparsity": 0.5, "rounds": 1, "epochs": 2, "batch": 32},
    **{"learning_rate": 0.001, "temperature": 5.0, "select": "loss", "negatives": "noise"},
}
MERGE: dict[str, Any] = {
    "merge_method": "ties",
    "models": ["dense.safetensors", {"model": "pruned.safetensors", "parameters": {"weight": 0.5}}],
    "parameters": {"density": 0.5, "lambda": 1.0},
    "base_model": "zero",
    "without": [],
    "seed": 0,
}
CALLS = (
    "{name}",
    "{name}()",
    "{name}({v})",
    "{name}({v}, {v})",
    "{name}(a={v})",
    "{name}({key}={v})",
    "{name}({key}={v}, {key}={v})",
    "{name}(*{v})",
    "{name}(**{v})",
    "{name}({v}",
    "{name}.x({v})",
    "({name})({v})",
    "{name}[{v}]",
    "lambda: {name}",
    "{name}({name}({v}))",
    "{name} {v}",
    " {name} ",
    "{name}\n({v})",
    "{name}; {v}",
    "{name}({key}={v}, a={v})",
    "{name} + {name}({v})",
)
VALUES = (
    "1",
    "-1",
    "0",
    "0.5",
    "1e999",
    "-1e999",
    "10**9",
    "9" * 5000,
    "1" * 4301,
    "2**31",
    "[8, 8]",
    "[" * 60 + "]" * 60,
    "[" * 3000,
    "'a'",
    "'" + "a" * 9000 + "'",
    "None",
    "True",
    "nan",
    "inf",
    "1j",
    "b'x'",
    "{'a': 1}",
    "{1, 2}",
    "()",
    "[1] * 10**9",
    "'a' * 10**9",
    "-" * 3000 + "1",
    "0x" + "f" * 5000,
    "1_0",
    "...",
    "[[]]",
    "[1.5, 2]",
    "[-3]",
    "[1000000000]",
    "100000000000",
    "__import__('os')",
    "f'{1}'",
    "'\\x1b[31m'",
    "'\\ud800'",
    "'\\0'",
    "\0",
    "\ud800",
    "é",
    "1e-320",
    "[0]",
    "[1]*3",
    "1.7976931348623157e308",
    "-0.0",
    "65536",
    "[65536, 65536]",
)


def surfaces(folder: Path) -> list[Surface]:
    modules = originals(folder)[:2]
    return [
        Surface("recipes", _recipe_kinds(folder), weight=3),
        Surface("specs", _spec_kinds(modules), weight=3),
    ]


# recipes


def _recipe_kinds(folder: Path) -> dict[str, Maker]:
    def training(path: Path) -> Input:
        def use() -> Any:
            kind_of(path)
            return describe_plan(read_recipe(path, {}, {}))

        return Input(use)

    def merging(path: Path) -> Input:
        def use() -> Any:
            kind_of(path)
            merged = MergeRecipe.load(path).compose()
            with torch.no_grad():
                return merged(torch.zeros(1, 4)).shape

        return Input(use)

    def put(place: Path, content: bytes, merge: bool) -> Input:
        path = place / "recipe.yaml"
        path.write_bytes(content)
        if merge:
            for name in ("dense", "pruned"):
                (place / f"{name}.safetensors").symlink_to(folder / f"{name}.safetensors")
        return (merging if merge else training)(path)

    def values(original: dict[str, Any], merge: bool) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            changed = mutations.mutated(chance, original, most=2)
            return put(place, mutations.yaml_bytes(chance, changed), merge)

        return make

    def tricks(chance: Random, place: Path) -> Input:
        merge = chance.random() < 0.4
        original = MERGE if merge else TRAINING
        key = chance.choice(list(original))
        kept = {k: v for k, v in original.items() if k != key or chance.random() < 0.1}
        text = mutations.yaml_bytes(chance, kept).decode("utf-8", "surrogatepass")
        trick = mutations.yaml_tricks(chance, key, "1")
        text = text + "\n" + trick if chance.random() < 0.7 and not text.startswith("{") else trick
        encoding = chance.choice(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1"])
        return put(place, text.encode(encoding, "replace"), merge)

    def damaged(chance: Random, place: Path) -> Input:
        merge = chance.random() < 0.4
        content = mutations.yaml_bytes(chance, MERGE if merge else TRAINING)
        how = chance.choice(
            [mutations.flip, mutations.damage, lambda c, b: mutations.raw(c, (b"", b"a: ", b"- "))]
        )
        return put(place, how(chance, content), merge)

    def odd_path(chance: Random, place: Path) -> Input:
        content = mutations.yaml_bytes(chance, TRAINING)
        path = mutations.odd_path(chance, place, "recipe.yaml", content)
        return chance.choice([training, merging])(path)

    def models(chance: Random, place: Path) -> Input:
        changed = {**MERGE, "models": [str(mutations.odd_path(chance, place, "m.safetensors"))]}
        return put(place, mutations.yaml_bytes(chance, changed), True)

    def large(chance: Random, place: Path) -> Input:
        value = chance.choice(
            [
                {"seeds": list(range(100_000))},
                {"partition": [[str(i)] for i in range(30_000)]},
                {"model": f"mlp({', '.join(['8'] * 5000)})"},
                {"model": "mlp(1000000000)"},
                {"rounds": 10**9, "epochs": 10**9},
                {"data_options": {"classes": [str(i) for i in range(100_000)]}},
                {"negatives": " + ".join(["noise"] * 5000)},
                {str(i): i for i in range(50_000)},
                {"data": "x" * 1_000_000},
            ]
        )
        return put(place, mutations.yaml_bytes(chance, {**TRAINING, **value}), False)

    return {
        "training: values changed": values(TRAINING, False),
        "merge: values changed": values(MERGE, True),
        "YAML's own tricks": tricks,
        "bits and bytes": damaged,
        "models that are not files": models,
        "not an ordinary file": odd_path,
        "small file, big appetite": large,
    }


# specs


def _spec_kinds(modules: list[Module]) -> dict[str, Maker]:
    catalogue = ["cat", "dog", "eel", "C++"]

    def model(text: Any) -> Any:
        with torch.device("meta"):
            return str(build(text, (4,), 3))[:99]

    def operator(text: Any) -> Any:
        merged = Composition(modules, text)
        with torch.no_grad():
            return merged(torch.zeros(1, 4)).shape

    def pruning(text: Any) -> Any:
        return str(Recipe(pruning=text, preset="paper").resolve().pruning)

    def setting(text: Any) -> Any:
        recipe = Recipe.read({**TRAINING, **assignments([str(text)])}).resolve()
        return recipe.digest()

    def kind(uses: Callable[[Any], Any], names: list[str], keys: list[str]) -> Maker:
        def make(chance: Random, place: Path) -> Input:
            text: Any = _call(chance, names, keys)
            if chance.random() < 0.15:
                text = {
                    chance.choice(["name", *keys]): mutations.odd_value(chance),
                    "name": names[0],
                }
            return Input(lambda: uses(text))

        return make

    def sets(text: Any) -> Any:
        return partition(catalogue, read_sets(str(text), "--partition"))

    def named(registry: Any) -> tuple[list[str], list[str]]:
        keys = {key for name in registry for key in registry.parameters(name)}
        return list(registry), sorted(keys)

    def assigned(chance: Random, place: Path) -> Input:
        key = chance.choice([*TRAINING, "a", ""])
        word = f"{key}={mutations.yaml_tricks(chance, 'a', '1')}"
        if chance.random() < 0.5:
            word = f"{key}={chance.choice(VALUES)}"
        return Input(lambda: setting(word))

    def classes(chance: Random, place: Path) -> Input:
        words = [
            *catalogue,
            '"',
            "'",
            '"C++"',
            "+",
            ",",
            "++",
            " ",
            '"a',
            "blocks(2)",
            "each",
            *mutations.NAMES,
        ]
        text = "".join(chance.choice(words) for _ in range(chance.randint(1, 9)))
        text = chance.choice([text] * 5 + [text * 2000, f"blocks({chance.choice(VALUES)})"])
        use = chance.choice([sets, lambda t: partition(catalogue, t), read_target])
        return Input(lambda: use(text))

    return {
        "models": kind(model, *named(MODELS)),
        "operators": kind(operator, *named(OPERATORS)),
        "objectives": kind(lambda t: objective(t, 10, [0]).table.shape, *named(OBJECTIVES)),
        "pruning": kind(pruning, *named(PRUNINGS)),
        "negatives": kind(
            lambda t: list(map(str, read_negatives(t))), ["noise", "mixed", "scaled"], ["amount"]
        ),
        "settings on the command line": assigned,
        "sets of classes": classes,
    }


def _call(chance: Random, names: list[str], keys: list[str]) -> str:
    text = chance.choice(CALLS)
    while "{v}" in text:
        text = text.replace("{v}", chance.choice(VALUES), 1)
    name = chance.choice([*names, *names, *mutations.NAMES])
    key = chance.choice([*keys, "a", "name", "self", "context", "shape"])
    text = text.replace("{name}", name).replace("{key}", key)
    if chance.random() < 0.1:
        text = mutations.damage(chance, text.encode("utf-8", "replace")).decode("utf-8", "replace")
    return text
