"""A module's header and tensors, from and to plain values; what a file says is never trusted."""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor

from intarsia.data import Scaling
from intarsia.encoders import ENCODERS, Encoder
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import LONGEST, FileError, ModelError, RecipeError, shortened
from intarsia.limits import account, current
from intarsia.models import Model
from intarsia.models.custom.probe import Probe
from intarsia.modules.architecture import Architecture, Plan
from intarsia.modules.bases.base_weights import Base
from intarsia.modules.bases.low_rank import LowRank
from intarsia.modules.file import LOW_RANK, decode, encode, stored_names
from intarsia.specs import Spec

FIELDS = (
    "name", "rewarded", "catalogue", "architecture", "scaling", "temperature", "origin",
    "provenance", "tensors",
)  # fmt: skip
OPTIONAL = (
    "encoder",
    "base",
)  # where a module has them, so that others stay
FindBase = Callable[[str, Architecture, Model | None], Base]
NOTHING = torch.zeros((), dtype=torch.bool)  # of a tensor's mask, however large
LARGEST = 2**31  # no size or setting in a header is larger
LARGEST_INPUT = 2**28  # entries


def pack(
    state: Mapping[str, Tensor],
    mask: Mapping[str, Tensor],
    base: Base | None = None,
    low_rank: Mapping[str, LowRank] | None = None,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header's `tensors` table and the tensors to store; with a base, those that changed."""
    table: dict[str, Any] = {}
    stored: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if base is not None and tensor is base.state[name]:
            continue
        change = (low_rank or {}).get(name)
        if change is None:
            table[name], tensors = encode(name, tensor, mask.get(name), steps=base is not None)
        else:
            shape, factors = list(tensor.shape), (change.up, change.down)
            table[name] = {"encoding": LOW_RANK, "shape": shape, "scale": change.scale}
            tensors = dict(zip(stored_names(name, LOW_RANK), factors, strict=True))
        clash = stored.keys() & tensors.keys()
        if clash:
            raise FileError(f"two tensors would be stored as {clash.pop()!r}: rename one of them")
        stored |= tensors
    return table, stored


def unpack(
    fields: Mapping[str, Any],
    stored: Mapping[str, Tensor],
    model: Model | None,
    encoder: EncoderLike | None = None,
    find_base: FindBase | None = None,
) -> dict[str, Any]:
    """The arguments of a Module, or a FileError that says what is wrong with the header."""
    check_keys(fields, FIELDS, OPTIONAL)
    catalogue = texts(fields["catalogue"], "catalogue")
    current().check("classes", len(catalogue), "its catalogue has {} classes")
    architecture = _architecture(fields["architecture"])
    if architecture.model is None and model is None:
        raise FileError(
            "its network comes from a factory that files do not hold: "
            "give it, as in Module.load(path, model=factory), in a shell with "
            "--model package.module:factory"
        )
    factory = model if architecture.model is None else None
    plan, base = _plan(architecture, factory), None
    if "base" in fields:
        digest = text(fields["base"], "base")
        if find_base is None:
            raise FileError(f"is a change of the base {shortened(digest)}, which is not here")
        base = find_base(digest, architecture, factory)
        check_base(base, plan)
    state, mask, low_rank = _state(fields["tensors"], stored, plan, base)
    architecture.check_probe(factory)
    return {
        "name": text(fields["name"], "name"),
        "state": state,
        "mask": mask,
        "rewarded": texts(fields["rewarded"], "rewarded"),
        "catalogue": catalogue,
        "architecture": architecture,
        "scaling": _scaling(fields["scaling"]),
        "temperature": _number(fields["temperature"], "temperature"),
        "origin": text(fields["origin"], "origin"),
        "provenance": _mapping(fields["provenance"], "provenance"),
        "factory": factory,
        "encoder": _encoder(fields.get("encoder"), encoder),
        "base": base,
        "low_rank": low_rank,
    }


def check_base(base: Base, plan: Plan) -> None:
    """A base has the network's tensors, and nothing else."""
    for what, names in (
        ("lacks", plan.keys() - base.state.keys()),
        ("has", base.state.keys() - plan.keys()),
    ):
        if names:
            raise ModelError(
                f"the base {shortened(base.name)} {what} the tensor {min(names)!r} against the "
                "network: it is the base of another model"
            )
    for name, entry in plan.items():
        tensor = base.state[name]
        if (tuple(tensor.shape), tensor.dtype) != (entry.shape, entry.dtype):
            raise ModelError(
                f"the base {shortened(base.name)} has {name!r} as {tuple(tensor.shape)} "
                f"{tensor.dtype}, the network needs {entry.shape} {entry.dtype}: it is the base of "
                "another model"
            )


def check_keys(
    fields: Mapping[str, Any], known: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Exactly the known keys, of the optional ones any, or a FileError."""
    missing = sorted(set(known) - set(fields))
    extra = sorted(set(fields) - {*known, *optional})
    if missing or extra:
        others = ", ".join(extra)[:LONGEST]
        what = f"lacks {', '.join(missing)}" if missing else f"has the unknown {others}"
        raise FileError(f"its header {what}: get the file again from where it came")


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise _wrong(name, value, "a list of text")
    return tuple(value)


def spec(value: Any, name: str, *, by_part: bool = False) -> Spec | None:
    """A name with its settings, which may be mappings if `by_part`; None for null."""
    if value is None:
        return None
    check_keys(_mapping(value, name), ("name", "arguments"))
    arguments = _mapping(value["arguments"], f"{name}.arguments")
    for key, setting in arguments.items():
        each = setting.values() if by_part and isinstance(setting, dict) else [setting]
        for one in each:
            _setting(one, f"{name}.{key}")
    return Spec(text(value["name"], f"{name}.name"), arguments)


def _state(
    table: Any, stored: Mapping[str, Tensor], plan: Plan, base: Base | None
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, LowRank]]:
    encodings = _encodings(table, plan, base is not None)
    expected = {key for name, kind in encodings.items() for key in stored_names(name, kind)}
    for what, names in (("lacks", expected - set(stored)), ("holds", set(stored) - expected)):
        if names:
            raise FileError(
                f"{what} the tensor {min(names)!r}, against its own table: "
                "get the file again from where it came"
            )
    _count_memory(encodings, plan, stored)
    state: dict[str, Tensor] = {}
    mask: dict[str, Tensor] = {}
    low_rank: dict[str, LowRank] = {}
    for name, entry in plan.items():
        if encodings.get(name) == LOW_RANK:  # which the module adds to its base
            up, down = (stored[key] for key in stored_names(name, LOW_RANK))
            low_rank[name] = LowRank(up, down, _number(table[name]["scale"], f"tensors.{name}"))
            continue
        own = None if base is None else base.state[name]
        if own is not None and name not in encodings:  # as the base has it
            state[name], kept = own, NOTHING.expand(entry.shape) if entry.learned else None
        else:
            state[name], kept = decode(name, encodings[name], entry, stored, own)
        if kept is not None:
            mask[name] = kept
    return state, mask, low_rank


def _count_memory(encodings: Mapping[str, str], plan: Plan, stored: Mapping[str, Tensor]) -> None:
    """Count what the module and its copies will take, before any of it is allocated.

    A module keeps its tensors and a byte of mask for each entry that can be pruned. While it is
    made there is a second set of both, and a look at its health makes as many entries again twice;
    finding survivors takes eight bytes for each, several times. A product of factors is added up in
    float64, three tensors of it.
    """
    pruned = sum(prod(plan[name].shape) for name, kind in encodings.items() if kind != "dense")
    dense = sum(prod(plan[name].shape) * plan[name].dtype.itemsize for name in encodings)
    size = sum(tensor.nbytes for tensor in stored.values())
    products = [prod(plan[name].shape) for name, kind in encodings.items() if kind == LOW_RANK]
    with account() as taken:
        taken.take(
            "its tensors and their copies take {} of memory",
            dense + pruned,
            passing=dense + 3 * pruned + 8 * size + 24 * max(products, default=0),
        )


def _encodings(table: Any, plan: Plan, changes: bool) -> dict[str, str]:
    """The encoding of every tensor, once the table has the network's names and shapes.

    A table of changes has no tensor that is as in the base.
    """
    table = _mapping(table, "tensors")
    lacking = set() if changes else plan.keys() - table.keys()
    for what, names in (("lacks", lacking), ("has", table.keys() - plan.keys())):
        if names:
            raise FileError(
                f"{what} the tensor {min(names)!r} {'of' if what == 'lacks' else 'unknown to'} "
                "its network: it was made for another version of this model"
            )
    for name, entry in table.items():
        scaled = _mapping(entry, f"tensors.{name}").get("encoding") == LOW_RANK
        check_keys(entry, ("encoding", "shape", "scale") if scaled else ("encoding", "shape"))
        if scaled and not changes:
            raise FileError(f"tensor {name!r} is a low-rank change of no base: get the file again")
        if entry["shape"] != list(plan[name].shape):
            raise FileError(
                f"tensor {name!r} has shape {shortened(entry['shape'])}, its network needs "
                f"{list(plan[name].shape)}: it was made for another version of this model"
            )
        if entry["encoding"] != "dense" and not plan[name].learned:
            raise FileError(f"tensor {name!r} is a buffer and cannot be pruned")
    return {name: text(entry["encoding"], f"tensors.{name}") for name, entry in table.items()}


def _architecture(value: Any) -> Architecture:
    extra = {"widths", "probe"} & _mapping(value, "architecture").keys()
    check_keys(value, ("model", "shape", "outputs", *extra))
    return Architecture(
        spec(value["model"], "architecture.model"),
        _sizes(value["shape"], "architecture.shape"),
        _size(value["outputs"], "architecture.outputs"),
        _widths(value["widths"]) if "widths" in extra else {},
        _probe(value["probe"], "architecture.probe") if "probe" in extra else None,
    )


def _encoder(value: Any, given: EncoderLike | None) -> Encoder | None:
    """What a file says of its encoder; with the network or function given, which must be that."""
    if value is None:
        if given is not None:
            raise FileError("its module reads raw inputs and has no encoder: leave encoder= out")
        return None
    optional = ("probe",)
    check_keys(
        _mapping(value, "encoder"), ("name", "spec", "weights", "shape", "features"), optional
    )
    named = spec(value["spec"], "encoder.spec")
    if named is not None:
        try:
            ENCODERS.spec(named)
        except RecipeError as error:
            raise FileError(f"its encoder cannot be used here: {error}") from error
    if (named is None) != ("probe" in value):
        raise FileError("its header's 'encoder' has a spec and a probe, or neither: expected one")
    weights, name = (text(value[key], f"encoder.{key}") for key in ("weights", "name"))
    if not re.fullmatch(r"[0-9a-f]{64}", weights) and (weights or named is not None):
        raise _wrong("encoder.weights", weights, "a digest of 64 hexadecimal digits")
    if not 1 <= len(name) <= LONGEST:
        raise _wrong("encoder.name", name, f"1 to {LONGEST} characters")
    encoder = Encoder(
        name,
        named,
        weights,
        _sizes(value["shape"], "encoder.shape"),
        _size(value["features"], "encoder.features"),
        _probe(value["probe"], "encoder.probe") if named is None else None,
    )
    return encoder if given is None else encoder.with_network(given)


def _sizes(value: Any, name: str) -> tuple[int, ...]:
    """The shape of an input."""
    if not isinstance(value, list) or not 1 <= len(value) <= 8:
        raise _wrong(name, value, "a list of one to eight sizes")
    sizes = tuple(_size(v, name) for v in value)
    if prod(sizes) > LARGEST_INPUT:
        raise _wrong(name, value, f"at most {LARGEST_INPUT} entries")
    return sizes


def _widths(value: Any) -> dict[str, int]:
    """Units by axis; whether the network has these axes, its plan will show."""
    if not 1 <= len(_mapping(value, "architecture.widths")) <= 4096:
        raise _wrong("architecture.widths", value, "one to 4096 axes, or no such key")
    return {axis: _size(units, "architecture.widths") for axis, units in value.items()}


def _probe(value: Any, name: str) -> Probe:
    if not isinstance(value, list) or not 1 <= len(value) <= 256:
        raise _wrong(name, value, "a list of at most 256 numbers, or no such key")
    return tuple(_number(item, name) for item in value)


def _setting(value: Any, name: str) -> None:
    """A setting small enough that building the network's skeleton from it is quick."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        fits = item is None or isinstance(item, bool | str | int | float)
        if not fits or (isinstance(item, int | float) and abs(item) > LARGEST) or len(items) > 256:
            raise _wrong(name, value, "a setting, or a list of at most 256")


def _plan(architecture: Architecture, factory: Model | None) -> Plan:
    try:
        return architecture.plan(factory)
    except Exception as error:  # whatever a network's code says to settings it cannot use
        raise FileError(f"its network ({architecture}) cannot be built: {error}") from error


def _scaling(value: Any) -> Scaling:
    check_keys(_mapping(value, "scaling"), ("kind", "shift", "scale"))
    for key in ("shift", "scale"):
        for item in value[key] if isinstance(value[key], list) else [value[key]]:
            _number(item, f"scaling.{key}")
    return Scaling.from_json(value)


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(name, value, "a mapping")
    return value


def _size(value: Any, name: str) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST:
        raise _wrong(name, value, f"a whole number from 1 to {LARGEST}")
    return value


def _number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or abs(value) > 1e30:
        raise _wrong(name, value, "a number")
    return float(value)


def _wrong(name: str, value: Any, expected: str) -> FileError:
    return FileError(f"its header's {name!r} is {shortened(value)}, expected {expected}")
