"""Artifacts, data and plans as plain values: what `--json` prints and tables are made from."""

import inspect
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from intarsia.artifacts import SPLITS, Artifact, weights_path
from intarsia.composition import OPERATORS, Composition
from intarsia.composition.merge_recipe import settings_of
from intarsia.composition.module_paths import header_of
from intarsia.data import DATASETS, Data, Scaling, check_options, load_data, locate, partition
from intarsia.encoders import Encoder
from intarsia.files import plain
from intarsia.models import MODELS
from intarsia.modules import Bank, Module
from intarsia.objectives import OBJECTIVES
from intarsia.pruning import PRUNINGS
from intarsia.training import Recipe
from intarsia.training.settings.presets import DataSize
from intarsia.training.settings.recipe import CUSTOM


def describe(artifact: Artifact, path: Path) -> dict[str, Any]:
    """A module, a composition or a bank that was read from a path."""
    file = weights_path(path)
    if isinstance(artifact, Bank):
        return {**describe_bank(artifact, file), "path": str(path)}
    head = {"path": str(path), "kind": "module", "bytes": file.stat().st_size}
    head |= {"health": artifact.health.to_json()}
    content = _module(artifact) if isinstance(artifact, Module) else _composition(artifact, file)
    return plain({**head, **content}, str(path))


def describe_bank(bank: Bank, folder: Path | None) -> dict[str, Any]:
    """A bank and its modules, with the scores that training left in them."""
    classes = len(bank[0].catalogue) if len(bank) else 0
    modules = [
        {**_row(module), "file": name, "bytes": (folder / name).stat().st_size if folder else None}
        for module, name in zip(bank, bank.file_names, strict=True)
    ]
    return plain(
        {
            "path": folder and str(folder),
            "kind": "bank",
            "health": bank.health.to_json(),
            "architecture": str(bank[0].architecture) if classes else None,
            "catalogue": bank[0].catalogue if classes else [],
            "seeds": bank.seeds,
            "ceiling": math.log(classes) if classes else None,
            "engine": bank.report.get("engine"),
            "device": bank.report.get("device"),
            "recipe": bank[0].provenance.get("recipe") if classes else None,
            "modules": modules,
            "diverged": bank.diverged,
            **_base(bank),
        },
        "bank",
    )


def describe_data(data: Data) -> dict[str, Any]:
    """Shapes, counts of every class in every split, scaling and digest."""
    splits = {name: getattr(data, name) for name in SPLITS}
    counts = {
        name: dict(zip(data.catalogue, split.y.bincount(minlength=data.classes), strict=True))
        for name, split in splits.items()
    }
    return plain(
        {
            "name": data.name,
            "inputs": " x ".join(map(str, data.shape)),
            "shape": data.shape,
            "type": str(data.train.x.dtype).removeprefix("torch."),
            "catalogue": data.catalogue,
            "samples": {name: len(split) for name, split in splits.items()},
            "counts": counts,
            "scaling": _scaling(data.scaling),
            **_encoder(data.encoder),
            "digest": data.digest,
        },
        data.name,
    )


def describe_datasets() -> list[dict[str, Any]]:
    """Every named data set and where it would come from on this machine."""
    return [
        {
            "name": name,
            "title": source.title,
            "inputs": " x ".join(map(str, source.shape or ())),
            "classes": len(source.keep or ()) or source.classes,
            "rows": source.rows,
            "where": _where(name),
        }
        for name, source in DATASETS.items()
    ]


def describe_plan(recipe: Recipe) -> dict[str, Any]:
    """What training would do: the settings it takes, the data's size, how many modules it makes.

    While the data set is not on this machine, its size is null, and `open` names the settings that
    follow from it.
    """
    if recipe.model != CUSTOM:
        MODELS.spec(recipe.model)
    OBJECTIVES.spec(recipe.objective)
    PRUNINGS.spec(recipe.pruning or "magnitude")
    named = recipe.data if isinstance(recipe.data, str) else None
    if named in DATASETS and DATASETS[named].files and not locate(named):
        now, some = recipe.as_dict(), recipe.resolve(DataSize(1000, 100, 10)).as_dict()
        unknown = [key for key in some if some[key] != now.get(key)]
        return {"recipe": now, "size": None, "modules": None, "open": unknown}
    options = {**recipe.data_options, "download": False}
    check_options(options)
    data = load_data(recipe.data, **options)
    sets = partition(data.catalogue, recipe.partition, recipe.partition_seed)
    size = DataSize.of(data)
    return {
        "recipe": recipe.resolve(size).as_dict(),
        "size": asdict(size),
        "modules": len(sets) * len(recipe.seeds),
        "open": [],
    }


def describe_operators() -> list[dict[str, Any]]:
    """Every operator with what it works on, its settings and their defaults, and its paper."""
    operators = []
    for name, how in OPERATORS.items():
        parameters = inspect.signature(how).parameters
        operators.append(
            {
                "name": name,
                "on": getattr(how, "on", None),
                "title": (inspect.getdoc(how) or "").partition("\n")[0],
                "samples": getattr(how, "samples", False),
                "settings": {key: plain(parameters[key].default) for key in settings_of(name)},
                "paper": getattr(how, "paper", ""),
            }
        )
    return operators


def describe_export(
    artifact: Module | Composition,
    path: Path,
    kind: str,
    inputs: str,
    raw: Sequence[int] | None = None,
) -> dict[str, Any]:
    """A file that was exported; `raw` is the shape of an encoder's inputs where it was given."""
    first = _networks(artifact)[0]
    shape = raw or (first.encoder or first.architecture).shape
    onnx = kind == "onnx"
    return plain(
        {
            "path": str(path),
            "kind": kind,
            "bytes": path.stat().st_size,
            "networks": len(_networks(artifact)),
            "inputs": f"raw {inputs}, N x {' x '.join(map(str, shape))}" if onnx else None,
            "outputs": f"logits, N x {len(artifact.catalogue)}" if onnx else None,
            "catalogue": artifact.catalogue,
            "rewarded": artifact.rewarded,
            "temperature": artifact.temperature,
        },
        str(path),
    )


def _encoder(encoder: Encoder | None) -> dict[str, str]:
    """One line, where there is an encoder."""
    if encoder is None:
        return {}
    shape = " x ".join(map(str, encoder.shape))
    return {"encoder": f"{encoder}, from {shape} to {encoder.features} features"}


def _where(name: str) -> str:
    files = DATASETS[name].files
    if not files:
        return "embedded"
    path = locate(name)
    if path is None:
        return f"download from {urlsplit(files[0].copies[0][0]).netloc}"
    folder = os.environ.get("INTARSIA_DATA")
    kind = "folder" if folder and path.parent == Path(folder).expanduser() else "cache"
    return f"{kind} {path}"


def _module(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "rewarded": module.rewarded,
        "catalogue": module.catalogue,
        "architecture": str(module.architecture),
        "parameters": module.parameters,
        "nonzero": module.nonzero,
        "density": module.density,
        "dense_bytes": sum(t.numel() * t.element_size() for t in module.state.values()),
        "temperature": module.temperature,
        "scaling": _scaling(module.scaling),
        **_encoder(module.encoder),
        "origin": module.origin,
        **_base([module]),
        "digest": module.digest,
        "provenance": module.provenance,
        "tensors": _tensors([module]),
    }


def _composition(merged: Composition, path: Path) -> dict[str, Any]:
    networks = _networks(merged)
    alike = all(module.plan == networks[0].plan for module in networks)
    return {
        **merged.report,
        "kind": "composition",
        "catalogue": merged.catalogue,
        "architecture": "; ".join(dict.fromkeys(str(m.architecture) for m in networks)),
        "align": merged.options.align,
        "samples": None if merged.samples is None else len(merged.samples),
        "temperature": merged.temperature,
        "scaling": "; ".join(dict.fromkeys(_scaling(m.scaling) for m in networks)),
        "origins": sorted({module.origin for module in merged.parts}),
        **_base(merged.parts),
        "digest": header_of(path).get("digest"),
        "parts": [_row(module) for module in merged.parts],
        "tensors": _tensors(networks) if alike else [],
    }


def _networks(artifact: Module | Composition) -> list[Module]:
    """What runs: one network, or the parts, where these keep their networks or convolutions."""
    if isinstance(artifact, Module):
        return [artifact]
    if artifact.in_blocks or artifact.joined is None:
        return list(artifact.parts)
    return [artifact.joined]


def _base(modules: Iterable[Module]) -> dict[str, str]:
    """What modules are changes of, where they are."""
    bases = {m.base.digest: m.base for m in modules if m.base is not None}
    said = [f"{b.name}, {b.nbytes:,} bytes, {digest[:16]}" for digest, b in bases.items()]
    return {"base": "; ".join(said)} if said else {}


def _row(module: Module) -> dict[str, Any]:
    scores = (module.provenance.get("scores") or {}).get("validation") or {}
    return {
        "name": module.name,
        "rewarded": module.rewarded,
        "seed": module.provenance.get("seed"),
        "accuracy": scores.get("accuracy"),
        "entropy": scores.get("entropy"),
        "nonzero": module.nonzero,
        "density": module.density,
        "digest": module.digest,
    }


def _tensors(modules: list[Module]) -> list[dict[str, Any]]:
    """Shape, type and surviving entries of every tensor, counted over all modules."""
    rows = []
    for name, entry in modules[0].plan.items():
        entries = math.prod(entry.shape)
        pruned = sum(int((~m.mask[name]).sum()) for m in modules if name in m.mask)
        rows.append(
            {
                "tensor": name,
                "shape": " x ".join(map(str, entry.shape)) or "scalar",
                "type": str(entry.dtype).removeprefix("torch."),
                "nonzero": entries * len(modules) - pruned,
                "density": 1 - pruned / max(1, entries * len(modules)),
            }
        )
    return rows


def _scaling(scaling: Scaling) -> str:
    if scaling.kind == "none":
        return "none"
    if scaling.shift.dim():
        return f"{scaling.kind}, feature by feature"
    return f"{scaling.kind}: (x - {scaling.shift.item():.6g}) * {scaling.scale.item():.6g}"
