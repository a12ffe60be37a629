"""Base: the pretrained weights that modules are changes of, stored once and known by a digest."""

import os
from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from intarsia.errors import FileError, IntarsiaError, ModelError, RecipeError, nearest, shortened
from intarsia.files import digest_of, link_whole
from intarsia.limits import account
from intarsia.models import Model, copies_of
from intarsia.models.axes import gives_output
from intarsia.models.custom.adapting import shared_names
from intarsia.models.custom.published import is_published, published
from intarsia.modules import file
from intarsia.modules.architecture import Architecture
from intarsia.modules.statistics import is_finite
from intarsia.specs import Registry, name_of

if TYPE_CHECKING:
    from intarsia.modules.module import Module

BASE = "base.safetensors"
"""The file, beside those of modules, that holds the base they are changes of."""

KIND = "intarsia-base"

BASES = Registry("base")
"""Bases by name; `@BASES.register("mine")` adds a function that gives a model and a state.

The model is what `train` takes, a name with its settings or a factory; the state has its tensors,
with any number of outputs.
"""


@dataclass(frozen=True, eq=False, repr=False)
class Base:
    """A full state of a network on the CPU, and a name for people to know it by.

    The tensors given are copied, unless `copy` is False and nobody else writes to them.
    """

    state: Mapping[str, Tensor]
    name: str = "base"
    copy: InitVar[bool] = True

    def __post_init__(self, copy: bool) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ModelError(f"a base is called {shortened(self.name)}: expected text, not empty")
        if not isinstance(self.state, Mapping) or not self.state:
            raise ModelError(f"base {shortened(self.name)} holds no tensors: give a state dict")
        for name, tensor in self.state.items():
            if not isinstance(name, str) or not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise ModelError(
                    f"base {shortened(self.name)} has {shortened(name)}, a {kind}: expected names "
                    "to tensors, as the state_dict() of a network has them"
                )
            if not is_finite(tensor):
                raise ModelError(
                    f"base {shortened(self.name)}: tensor {shortened(name)} holds values that are "
                    "not finite: give weights that a network can answer with"
                )
        state = {k: t.detach().to("cpu", copy=copy).contiguous() for k, t in self.state.items()}
        object.__setattr__(self, "state", state)

    @cached_property
    def digest(self) -> str:
        """What modules name it by: that of an origin, which it is to all that train from it."""
        return digest_of("origin", self.state)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state.values())

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all."""
        file.write(path, KIND, {"name": self.name, "base": self.digest}, self.state)

    def save_beside(self, folder: str | Path, written: Path | None = None) -> Path:
        """Its file in a folder of modules, written unless it is there, or linked to `written`."""
        for path in _files(Path(folder), self.digest):
            stated = stated_digest(path)
            if stated == self.digest:
                return path
            if stated is None and not path.exists():
                if written is None:
                    self.save(path)
                else:
                    link_whole(written, path)
                return path
        raise FileError(
            f"cannot write the base {self.name!r} into {folder}: another file has its name: save "
            "into another folder"
        )

    @classmethod
    def load(cls, path: str | Path) -> "Base":
        """Read a base's file, or say with a FileError what is wrong with it."""
        with file.reading(path):
            fields, tensors = file.read(path, KIND)
            if set(fields) != {"name", "base"}:
                raise FileError("its header is not that of a base: get the file again")
            base = counted(tensors, fields["name"], fields["base"])
        known = _LOADED.setdefault(base.digest, base)
        # A file of the same weights under another name shares their memory, and keeps its name.
        return known if known.name == base.name else cls(known.state, base.name, copy=False)

    def __repr__(self) -> str:
        return f"Base({self.name!r}, {len(self.state)} tensors, {self.digest[:16]})"


BaseSource: TypeAlias = Union[Base, "Module", nn.Module, Mapping[str, Tensor], str, Path]
"""What a base can be given as: itself, a module, a network, a state dict, a path or a name."""

_LOADED: WeakValueDictionary[str, Base] = WeakValueDictionary()  # so that files share memory


class BaseFinder:
    """Finds the base that a file is a change of: the one given, or the one that lies beside it."""

    def __init__(self, folder: str | Path, given: BaseSource | None = None) -> None:
        self.folder = Path(folder)
        self.given = None if given is None else read_base(given)[0]
        self._known: dict[str, Base] = {}

    def __call__(self, digest: str, architecture: Architecture, factory: Model | None) -> Base:
        """The base of this digest; one given with another number of outputs is fitted first."""
        if digest not in self._known:
            base = self._given(digest, architecture, factory) if self.given else self._read(digest)
            self._known[digest] = base
        return self._known[digest]

    def _given(self, digest: str, architecture: Architecture, factory: Model | None) -> Base:
        assert self.given is not None
        if self.given.digest == digest:
            return self.given
        base = fit_base(self.given, architecture, factory)
        if base.digest != digest:
            raise FileError(
                f"is a change of the base {shortened(digest)}, and {self.given.name!r}, which was "
                f"given, is {base.digest!r}: give the one it was trained from"
            )
        return base

    def _read(self, digest: str) -> Base:
        others = []
        for path in _files(self.folder, digest):
            stated = stated_digest(path)
            if stated == digest:
                base = Base.load(path)
                if base.digest == digest:
                    return base
            if path.exists():
                others.append(path.name)
        seen = f"{others[0]} beside it is another one" if others else f"no {BASE} is beside it"
        raise FileError(
            f"is a change of the base {shortened(digest)}, and {seen}: put it there, or give it, "
            "as in Module.load(path, base=...)"
        )


def read_base(source: BaseSource) -> tuple[Base, Model | None]:
    """The base that is meant, and its model where that is known."""
    if isinstance(source, Base):
        return source, None
    if isinstance(source, nn.Module):
        return _of_network(source, type(source).__name__)
    if isinstance(source, Mapping):
        return Base(source), None
    if isinstance(source, str) and name_of(source) in BASES:
        model, state = BASES.call(BASES.spec(source))
        return Base(state, source), model
    if isinstance(source, str) and is_published(source):
        return _of_network(published(source), source)
    if isinstance(source, str | os.PathLike):
        return _at(Path(source))
    if hasattr(source, "architecture") and hasattr(source, "state"):
        same = not source.architecture.widths
        model = source.architecture.model or source.factory
        return Base(source.state, source.name), model if same else None
    raise ModelError(
        f"a {type(source).__name__} is not a base: give a network, a state dict, a module, the "
        "path of a file, or a name"
    )


def _of_network(network: nn.Module, name: str) -> tuple[Base, Model]:
    """A shared tensor has one name in ours."""
    shared = shared_names(network)
    state = {key: t for key, t in network.state_dict().items() if key not in shared}
    return Base(state, name), copies_of(network)


def fit_base(base: Base, architecture: Architecture, factory: Model | None = None) -> Base:
    """The base as a full state of this network.

    Where it has another number of outputs, or none, the layer that makes them is 0. All else must
    be there in the shape that the network needs; numbers are taken to its precision.
    """
    plan, head = architecture.plan(factory), output_names(architecture, factory)
    fits = {k: k in base.state and base.state[k].shape == e.shape for k, e in plan.items()}
    silent = head if not all(fits[name] for name in head) else ()
    state = {}
    for name, entry in plan.items():
        if name in silent or (name not in base.state and name.endswith("num_batches_tracked")):
            state[name] = torch.zeros(entry.shape, dtype=entry.dtype)
            continue
        if not fits[name]:
            seen = f"has shape {tuple(base.state[name].shape)}" if name in base.state else "is not"
            raise ModelError(
                f"base {base.name!r}: tensor {name!r} {seen} there, and the network "
                f"({architecture}) needs shape {entry.shape}: give the base of this network, or "
                "its model with model="
            )
        if base.state[name].is_floating_point() != entry.dtype.is_floating_point:
            raise ModelError(
                f"base {base.name!r}: tensor {name!r} is {base.state[name].dtype}, the network "
                f"needs {entry.dtype}: give the base of this network"
            )
        state[name] = base.state[name].to(entry.dtype)
    if extra := sorted(base.state.keys() - plan.keys()):
        raise ModelError(
            f"base {base.name!r} has {extra[0]!r}, which the network ({architecture}) has not: "
            "leave it out, or give the base's model with model="
        )
    same = all(tensor is base.state.get(name) for name, tensor in state.items())
    return base if same else Base(state, base.name, copy=False)


def output_names(architecture: Architecture, factory: Model | None = None) -> tuple[str, ...]:
    """The parameters of the layer that makes the outputs: by the wiring, else the last Linear."""
    plan = architecture.plan(factory)
    try:
        wiring = architecture.wiring(factory)
    except IntarsiaError:
        wiring = {}
    gives = {name for name, entry in wiring.items() if gives_output(entry)}
    if gives:
        return tuple(name for name, entry in plan.items() if entry.learned and name in gives)
    layers = architecture.skeleton(factory).named_modules()
    last = [path for path, layer in layers if isinstance(layer, nn.Linear)][-1:]
    return tuple(name for name in plan if name.rpartition(".")[0] in last)


def common_base(modules: "tuple[Module, ...] | list[Module]") -> Base | None:
    """The base that all modules are changes of; None where they have none, or several."""
    bases = [module.base for module in modules]
    first = bases[0] if bases else None
    if first is None or any(b is None or b.digest != first.digest for b in bases):
        return None
    return first


def changes_of(module: "Module", base: Base) -> dict[str, Tensor]:
    """theta - base of every parameter, in float64, where it is exact; buffers as they are."""
    return {
        name: tensor.double() - base.state[name].double() if module.plan[name].learned else tensor
        for name, tensor in module.state.items()
    }


def counted(tensors: Mapping[str, Tensor], name: Any, digest: Any) -> Base:
    """A base from a file's tensors, which count on the account of whoever reads them."""
    with account() as taken:
        size = sum(tensor.nbytes for tensor in tensors.values())
        taken.take("the base takes {} of memory", size, passing=size)
    base = Base(tensors, name, copy=False)
    if base.digest != digest:
        raise FileError("its tensors are not those of the base it names: get the file again")
    return base


def stated_digest(path: Path) -> str | None:
    """The digest that the file of a base states; None where there is no such file."""
    try:
        digest = file.header(path, KIND).get("base")
    except (OSError, IntarsiaError):
        return None
    return digest if isinstance(digest, str) else None


def _files(folder: Path, digest: str) -> tuple[Path, Path]:
    """Where a base may lie: under the usual name, or its own where that one is taken."""
    return folder / BASE, folder / f"base-{digest[:16]}.safetensors"


def _at(path: Path) -> tuple[Base, Model | None]:
    if path.is_dir():
        return Base.load(path / BASE), None
    if not path.exists():
        raise RecipeError(
            f"there is no file {str(path)!r}, and no base of that name: {nearest(path, BASES)}"
        )
    if stated_digest(path) is not None:
        return Base.load(path), None
    from intarsia.modules.module import Module

    return read_base(Module.load(path, quiet=True))
