"""A composition's file: its parts, how they are joined, and the samples that joining looks at."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.composition.build import MergeOptions
from intarsia.composition.merge_context import ROWS
from intarsia.composition.scale_search import ScaleSearch
from intarsia.data import Split
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import CompositionError, FileError, shortened
from intarsia.limits import current
from intarsia.models import Model
from intarsia.modules import Architecture, Base, Health, Module, file, header
from intarsia.modules.bases.base_weights import counted
from intarsia.modules.file import reading
from intarsia.modules.health import KEY
from intarsia.specs import Spec

__all__ = ["read", "reading", "write"]
KIND = "intarsia-composition"
SAMPLES = "samples"
BASES = "bases"
SEARCH = "search"


def write(
    path: str | Path,
    parts: tuple[Module, ...],
    operator: Spec,
    options: MergeOptions,
    samples: Split | None,
    health: Health,
    search: ScaleSearch | None,
) -> None:
    """Whole or not at all; what is left at its default is not written, so old files stay alike.

    Nor is the health of what is healthy. It is written for people to read: loading checks anew.
    """
    packed = [module.packed() for module in parts]
    fields: dict[str, Any] = {
        "operator": {"name": operator.name, "arguments": dict(operator.arguments)},
        "parts": [fields for fields, _ in packed],
    }
    if options != MergeOptions():
        fields["options"] = asdict(options)
    if search is not None:  # on another machine the best scale may be another
        fields[SEARCH] = search.to_json()
    if not health.ok:
        fields[KEY] = health.to_json()
    tensors = {f"{i}/{k}": t for i, (_, own) in enumerate(packed) for k, t in own.items()}
    bases = {part.base.digest: part.base for part in parts if part.base is not None}
    if bases:  # each once, however many parts are changes of it
        fields[BASES] = [{"name": b.name, "base": digest} for digest, b in bases.items()]
        for i, base in enumerate(bases.values()):
            tensors |= {f"{BASES}/{i}/{k}": t for k, t in base.state.items()}
    if samples is not None:
        tensors |= {f"{SAMPLES}/x": samples.x, f"{SAMPLES}/y": samples.y}
    file.write(path, KIND, fields, tensors)


def read(
    path: str | Path, model: Model | None, encoder: EncoderLike | None = None
) -> tuple[list[Module], Spec, MergeOptions, Split | None, ScaleSearch | None]:
    """The arguments of a Composition, or a FileError that says what is wrong."""
    fields, tensors = file.read(path, KIND)
    options = _options(fields.pop("options", {}))
    fields.pop(KEY, None)
    search = ScaleSearch.from_json(fields.pop(SEARCH)) if SEARCH in fields else None
    bases = _bases(fields.pop(BASES, []), tensors)
    header.check_keys(fields, ("operator", "parts"))
    operator = header.spec(fields["operator"], "operator", by_part=True)
    if operator is None:
        raise FileError("its header names no operator: get the file again")
    samples = _samples({key: tensors.pop(f"{SAMPLES}/{key}", None) for key in ("x", "y")})
    parts = _parts(fields["parts"], tensors, model, encoder, bases)
    if samples is not None and parts and tuple(samples.x.shape[1:]) != parts[0].architecture.shape:
        raise FileError("its samples have another shape than its modules' inputs: get it again")
    return parts, operator, options, samples, search


def _options(value: Any) -> MergeOptions:
    if not isinstance(value, dict) or not set(value) <= set(asdict(MergeOptions())):
        raise FileError(
            f"its header's 'options' are {shortened(value)}, not known here: upgrade intarsia"
        )
    return MergeOptions(**value)


def _samples(tensors: Mapping[str, Tensor | None]) -> Split | None:
    x, y = tensors["x"], tensors["y"]
    if x is None and y is None:
        return None
    if (
        x is None
        or y is None
        or not x.dim()
        or not 0 < len(x) <= ROWS
        or y.shape != (len(x),)
        or y.dtype != torch.int64
    ):
        raise FileError(f"its samples are not 1 to {ROWS} inputs with a label each: get it again")
    return Split(x, y)


def _bases(value: Any, tensors: dict[str, Tensor]) -> dict[str, Base]:
    """The bases of a file by their digests; their tensors are taken out of the others."""
    if not isinstance(value, list) or not all(isinstance(fields, dict) for fields in value):
        raise FileError("its header's 'bases' is not a list of bases: get the file again")
    current().check("parts", len(value), "has {} bases")
    bases = {}
    for i, fields in enumerate(value):
        header.check_keys(fields, ("name", "base"))
        prefix = f"{BASES}/{i}/"
        own = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        for name in own:
            del tensors[prefix + name]
        base = counted(own, header.text(fields["name"], "name"), fields["base"])
        bases[base.digest] = base
    return bases


def _parts(
    value: Any,
    tensors: Mapping[str, Tensor],
    model: Model | None,
    encoder: EncoderLike | None,
    bases: Mapping[str, Base],
) -> list[Module]:
    if not isinstance(value, list) or not all(isinstance(fields, dict) for fields in value):
        raise FileError("its header's 'parts' is not a list of modules: get the file again")
    current().check("parts", len(value), "has {} parts")
    stored: list[dict[str, Tensor]] = [{} for _ in value]
    places = {str(i): own for i, own in enumerate(stored)}
    for name, tensor in tensors.items():
        place, _, rest = name.partition("/")
        if place not in places:
            raise FileError(f"holds the tensor {name!r} of no part: get the file again")
        places[place][rest] = tensor

    def find(digest: str, architecture: Architecture, factory: Model | None) -> Base:
        if digest not in bases:
            raise FileError(f"lacks the base {shortened(digest)} of a part: get the file again")
        return bases[digest]

    parts = []
    for fields, own in zip(value, stored, strict=True):
        parts.append(Module(**header.unpack(fields, own, model, encoder, find)))
        if encoder is not None:
            encoder = parts[-1].encoder  # which is known by now, and quicker to compare
    if len({part.name for part in parts}) < len(parts):
        raise CompositionError("has two parts of one name: get the file again")
    return parts
