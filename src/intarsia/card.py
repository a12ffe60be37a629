"""The model card of a module, composition or classifier: its classes, training and use."""

from collections.abc import Sequence

import yaml

import intarsia
from intarsia.composition import Composition
from intarsia.estimator import ModularClassifier
from intarsia.measure import format_number
from intarsia.modules import Module

RECIPE = (
    "model", "objective", "pruning", "sparsity", "rounds", "epochs", "batch", "optimiser",
    "learning_rate", "schedule", "temperature",
)  # fmt: skip


def card_of(artifact: Module | Composition | ModularClassifier, address: str) -> str:
    """Markdown with the front matter that the hub reads; `address` is where it will be found."""
    merged = artifact.composition_ if isinstance(artifact, ModularClassifier) else artifact
    parts = (merged,) if isinstance(merged, Module) else merged.parts
    front = {
        "library_name": "intarsia",
        "tags": ["intarsia", "modular", "maximum-entropy", "safetensors"],
        "pipeline_tag": _task(parts[0]),
    }
    return "\n".join(
        [
            f"---\n{yaml.safe_dump(front, sort_keys=False)}---",
            f"# {_title(artifact, parts)}\n",
            f"{_summary(artifact, parts)}\n",
            f"## Modules\n\n{_table(parts)}\n",
            f"## Training\n\n{_training(parts)}\n",
            f"## Use\n\n{_use(artifact, address)}",
        ]
    )


def _title(artifact: Module | Composition | ModularClassifier, parts: Sequence[Module]) -> str:
    if isinstance(artifact, Module):
        return f"Module for {', '.join(map(_code, artifact.rewarded))}"
    what = "Classifier" if isinstance(artifact, ModularClassifier) else "Composition"
    return f"{what} of {len(parts)} modules"


def _summary(artifact: Module | Composition | ModularClassifier, parts: Sequence[Module]) -> str:
    first = parts[0]
    known = {name for part in parts for name in part.rewarded}
    lines = [
        "Each module is sure of its own classes and as uncertain as possible about all others.",
        f"Catalogue: {', '.join(map(_code, first.catalogue))}.",
    ]
    unknown = [name for name in first.catalogue if name not in known]
    if unknown:
        lines.append(f"No module recognises {', '.join(map(_code, unknown))}.")
    if not isinstance(artifact, Module):
        merged = artifact.composition_ if isinstance(artifact, ModularClassifier) else artifact
        lines.append(f"Joined by `{merged.operator}`, without training.")
    if isinstance(artifact, ModularClassifier):
        lines.append(
            f"`predict(X, abstain=True)` withholds answers whose {artifact.novelty_.score} is "
            f"above {artifact.novelty_.threshold:.4g}."
        )
    return " ".join(lines)


def _table(parts: Sequence[Module]) -> str:
    kept = "changed" if parts[0].base else "kept"
    rows = [
        f"| module | weights {kept} | validation accuracy | entropy on other classes |",
        "|---|---|---|---|",
    ]
    for part in parts:
        scores = part.provenance.get("scores", {}).get("validation") or {}
        numbers = [format_number(scores.get(key)) for key in ("accuracy", "entropy")]
        rows.append(
            f"| {_code(part.name)} | {part.nonzero} of {part.parameters} | "
            f"{numbers[0]} | {numbers[1]} |"
        )
    return "\n".join(rows)


def _training(parts: Sequence[Module]) -> str:
    first = parts[0]
    recipe = first.provenance.get("recipe", {})
    data = first.provenance.get("data", {})
    lines = [f"- architecture: {_code(str(first.architecture))}"]
    lines += [f"- {key}: {_code(str(recipe[key]))}" for key in RECIPE if key in recipe]
    if data:
        lines.append(f"- data: {_code(str(data.get('name')))}, digest `{data.get('digest')}`")
    if first.base is not None:
        lines.append(f"- changes of the base {_code(first.base.name)}, `{first.base.digest}`")
    lines.append(f"- inputs: scaled by `{first.scaling.kind}`, inside the module")
    return "\n".join(lines)


def _use(artifact: Module | Composition | ModularClassifier, address: str) -> str:
    call = {
        ModularClassifier: "model.predict(X, abstain=True)",
        Composition: "model.predict(x)",
        Module: "model.to_module().predict(x)",
    }[type(artifact)]
    return (
        "```python\nimport intarsia\n\n"
        f"model = intarsia.from_pretrained({address!r})\n"
        f"{call}\n```\n\nMade with intarsia {intarsia.__version__}.\n"
    )


def _task(module: Module) -> str:
    images = len((module.encoder or module.architecture).shape) == 3
    return "image-classification" if images else "tabular-classification"


def _code(text: str) -> str:
    """Text between back ticks, on one line; a name may contain anything."""
    clean = " ".join(text.split()).replace("`", "'").replace("|", "/")
    return f"`{clean}`"
