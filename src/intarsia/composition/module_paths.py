"""Module paths: the module, the composition or the bank that a file or folder holds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from intarsia.composition.composition import Composition
from intarsia.errors import RecipeError
from intarsia.limits import current
from intarsia.models import Model
from intarsia.modules import Bank, Module
from intarsia.modules.bases.base_weights import BaseSource
from intarsia.parsing import parse_json


def load_path(
    path: Path, model: Model | None = None, base: BaseSource | None = None
) -> Module | Composition | Bank:
    """A bank from a folder; from a file a module or a composition, whichever it is.

    `model` and `base` as in Module.load; a composition holds its own. No warning of its
    health: the caller shows that.
    """
    if os.path.isdir(path):  # False, not an error, for names that no system takes
        return Bank.load(path, model, base=base, quiet=True)
    if header_of(path).get("format") == "intarsia-composition":
        return Composition.load(path, model, quiet=True)
    return Module.load(path, model, base=base, quiet=True)


def header_of(path: Path) -> dict[str, Any]:
    """The header that intarsia wrote into a file, unchecked; empty where there is none."""
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as start:
            if int.from_bytes(start.read(8), "little") > current().header:
                return {}
        with safe_open(path, framework="pt") as file:
            header = parse_json((file.metadata() or {})["intarsia"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}
    return header if isinstance(header, dict) else {}


def modules_at(
    path: Path, seed: int | None, *, one_seed: bool, model: Model | None = None
) -> Sequence[Module]:
    """All modules that a path holds; of a bank with several seeds those of `seed`.

    Without a seed they are those of all seeds, or an error where `one_seed` is needed.
    """
    artifact = load_path(path, model)
    if isinstance(artifact, Composition):
        return artifact.parts
    if isinstance(artifact, Module):
        return (artifact,)
    if seed is None and one_seed and len(artifact.seeds) > 1:
        seeds = ", ".join(map(str, artifact.seeds))
        raise RecipeError(
            f"{path} has modules of the seeds {seeds}: choose with --seed, or seed in a recipe"
        )
    return tuple(artifact if seed is None else artifact.seed(seed))
