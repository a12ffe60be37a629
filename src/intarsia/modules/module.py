"""A module: sparse trained weights with all that is needed to use, join and audit them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.data import Data, Scaling
from intarsia.encoders import Encoder
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import DataError, FileError, ModelError, shortened
from intarsia.files import digest_of, plain
from intarsia.models import Model, as_model
from intarsia.modules import file
from intarsia.modules.adoption import fields_of, with_adapter
from intarsia.modules.architecture import Architecture, Plan
from intarsia.modules.bases.adapters import read_adapter, write_adapter
from intarsia.modules.bases.base_weights import Base, BaseFinder, BaseSource
from intarsia.modules.bases.low_rank import LowRank, with_low_rank
from intarsia.modules.classifier import Classifier
from intarsia.modules.header import NOTHING, check_base, pack, unpack
from intarsia.modules.health import Health, module_health, warn
from intarsia.modules.statistics import is_finite

KIND = "intarsia-module"


@dataclass(frozen=True, eq=False, repr=False)
class Module:
    """Trained weights, mask, rewarded classes, catalogue, origin digest and provenance.

    `state` is dense on the CPU with pruned entries exactly +0.0; `mask` (True survives) has only
    the parameters that lost something. The tensors given are copied. With an `encoder` its network
    reads the features that that gives for raw inputs.

    With a `base` the module is a change of it: entries where the mask is False have exactly the
    base's values, what is counted, pruned and stored is what changed, and tensors without any
    change are the base's own. A weight in `low_rank` is the base's plus a product of two thin
    matrices, which are what is stored; `state` may be given without it.
    """

    name: str
    state: Mapping[str, Tensor]
    mask: Mapping[str, Tensor]
    rewarded: tuple[str, ...]
    catalogue: tuple[str, ...]
    architecture: Architecture
    scaling: Scaling
    temperature: float
    origin: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    factory: Model | None = None
    encoder: Encoder | None = None
    base: Base | None = None
    low_rank: Mapping[str, LowRank] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, value in {
            "rewarded": tuple(self.rewarded),
            "catalogue": tuple(self.catalogue),
            "temperature": float(self.temperature),
            "provenance": plain(self.provenance, "provenance"),
        }.items():
            object.__setattr__(self, key, value)
        _check_classes(self)
        _check_scaling(self.scaling, self.architecture.shape)
        _check_encoder(self.name, self.encoder, self.architecture.shape)
        plan = self.plan
        mask = {k: v.detach().to("cpu", torch.bool) for k, v in self.mask.items()}
        if self.base is not None:
            check_base(self.base, plan)
            _check_origin(self.name, self.origin, self.base)
        full = with_low_rank(self.name, self.state, mask, self.low_rank, self.base, plan)
        object.__setattr__(self, "state", full)
        object.__setattr__(
            self, "low_rank", {k: self.low_rank[k] for k in plan if k in self.low_rank}
        )
        _check_tensors(self.name, self.state, mask, plan)
        # Copies in the network's order, so that the same module has one spelling.
        if self.base is None:
            state = {k: _pruned(self.name, k, self.state[k], mask.get(k)) for k in plan}
        else:
            state = {k: self._changed(k, mask.get(k), self.base.state[k]) for k in plan}
        kept = {k: _own_mask(mask[k]) for k in plan if k in mask and not mask[k].all()}
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "mask", kept)

    @cached_property
    def plan(self) -> Plan:
        """Shape and dtype of every tensor of the network, and whether it is learned."""
        return self.architecture.plan(self.factory)

    @property
    def parameters(self) -> int:
        """How many parameters the network has; buffers are not counted."""
        return sum(math.prod(entry.shape) for entry in self.plan.values() if entry.learned)

    def own_data(
        self, source: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Data | None:
        """The data whose rows alone the network reads, where its factory brings it: a graph's.

        A `source` that somebody names must mean the same, and no options of loading can hold.
        """
        own = getattr(self.factory, "data", None)
        if not isinstance(own, Data):
            return None
        if source is not None and Path(source).stem != own.name:
            raise DataError(
                f"module {self.name!r} reads rows of {own.name!r} alone, which come with its "
                f"network, and not {shortened(source)}: leave it out"
            )
        if options:
            raise DataError(
                f"{own.name} comes with the modules' network, as it is: leave "
                f"{next(iter(options))} and other options of the data out"
            )
        return own

    @property
    def live(self) -> Mapping[str, Tensor]:
        """The mask where it says what is not 0: that of a change does not, and leaves all alive."""
        return self.mask if self.base is None else {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the features that it was trained on, where they came from a table."""
        about = self.provenance.get("data")
        names = about.get("columns") if isinstance(about, Mapping) else None
        return tuple(map(str, names)) if isinstance(names, list | tuple) else ()

    @property
    def nbytes(self) -> int:
        """The bytes of its tensors and masks."""
        return sum(tensor.nbytes for tensor in (*self.state.values(), *self.mask.values()))

    @cached_property
    def nonzero(self) -> int:
        """How many parameters survive, also those that happen to be 0.0; of a change, changed."""
        return self.parameters - sum(int((~mask).sum()) for mask in self.mask.values())

    @property
    def density(self) -> float:
        """The surviving fraction of the parameters."""
        return self.nonzero / self.parameters if self.parameters else 1.0

    @cached_property
    def digest(self) -> str:
        """sha256 of everything the file holds; equal for equal modules on any machine."""
        return digest_of(*self.packed())

    @cached_property
    def health(self) -> Health:
        """Whether it is dead, undertrained or inconsistent: `health.ok`, `health.findings`."""
        return module_health(self)

    def _changed(self, name: str, mask: Tensor | None, base: Tensor) -> Tensor:
        """A tensor with exactly the base's values where nothing changed; if nowhere, the base's."""
        given, learned = self.state[name], self.plan[name].learned
        if given is base and (mask is not None or not learned):
            return base
        tensor = given.detach().cpu()
        if mask is None:
            same = not learned and torch.equal(tensor, base)
            return base if same else tensor.clone(memory_format=torch.contiguous_format)
        kept = torch.where(mask, tensor, base).contiguous()
        if not torch.equal(kept, tensor):
            raise ModelError(
                f"module {shortened(self.name)}: {name!r} has other values than its base where its "
                "mask says unchanged: take the base's there"
            )
        return kept if bool(mask.any()) else base

    def to_module(self) -> Classifier:
        """A new nn.Module from raw inputs to logits over the catalogue, in evaluation mode."""
        return self.classifier(self.architecture.network(self.state, self.factory), self.rewarded)

    def classifier(self, network: nn.Module, rewarded: Sequence[str]) -> Classifier:
        """Another network that reads inputs as this module does, and the classes it is for."""
        return Classifier(
            network,
            catalogue=self.catalogue,
            rewarded=rewarded,
            shape=self.architecture.shape,
            scaling=self.scaling,
            temperature=self.temperature,
            encoder=self.encoder,
            columns=self.columns,
        ).eval()

    def without_base(self) -> "Module":
        """The same network as a module of its own, all of whose weights count."""
        return self if self.base is None else replace(self, mask={}, base=None, low_rank={})

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all; equal modules give equal bytes.

        It has what changed from the base, which is written beside it unless it is there already.
        """
        if self.base is not None:
            self.base.save_beside(Path(path).parent)
        file.write(path, KIND, *self.packed())

    @classmethod
    def of(
        cls,
        network: nn.Module | Mapping[str, Tensor],
        *,
        rewarded: str | Sequence[str],
        catalogue: Sequence[str],
        base: BaseSource | None = None,
        shape: Sequence[int] | None = None,
        scaling: Scaling | None = None,
        temperature: float = 1.0,
        name: str | None = None,
        model: Model | nn.Module | None = None,
    ) -> "Module":
        """A module of a network that was trained elsewhere, for its `rewarded` classes.

        The `catalogue` says what its outputs mean, in their order; one output more, the last, means
        none of these, which is a warning. The network is copied, and is given inputs as they are,
        unless a `scaling` such as that of Data goes before it. `shape`, that of an input, follows
        from a first layer that is Linear. Instead of a network, a state dict does, with `model`: a
        network of the same form, or the name or factory of one. What it was fine-tuned from is its
        `base`, as in `train`: modules that share one can be joined as changes of it. The name is by
        default that of the classes.

        Its file holds no code: `Module.load(path, model=network)` takes a network of the form.
        """
        fields = fields_of(
            network, rewarded, catalogue, base, shape, scaling, temperature, name, model
        )
        return cls(**fields)

    @classmethod
    def from_adapter(
        cls,
        folder: str | Path,
        base: nn.Module | Mapping[str, Tensor],
        *,
        rewarded: str | Sequence[str],
        catalogue: Sequence[str],
        shape: Sequence[int] | None = None,
        scaling: Scaling | None = None,
        temperature: float = 1.0,
        name: str | None = None,
        model: Model | nn.Module | None = None,
    ) -> "Module":
        """A module of a LoRA adapter in peft's files, as a change of the network it was made for.

        The folder holds adapter_config.json and adapter_model.safetensors. Its products stay what
        they are, `low_rank`; layers that were saved as a whole change as a whole. All else is as in
        `Module.of`. Adapters that are more than products are refused.
        """
        changes, whole = read_adapter(folder)
        settings = (shape, scaling, temperature, name, model)
        fields = fields_of(base, rewarded, catalogue, base, *settings)
        return cls(**with_adapter(fields, changes, whole, str(folder)))

    def save_adapter(self, folder: str | Path) -> None:
        """Write the change as an adapter, which `PeftModel.from_pretrained` of peft reads.

        Layers that trained as a whole, such as the head, are among its modules_to_save.
        """
        write_adapter(self, folder)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model | nn.Module | None = None,
        *,
        base: BaseSource | BaseFinder | None = None,
        catalogue: tuple[str, ...] | None = None,
        origin: str | None = None,
        quiet: bool = False,
        encoder: EncoderLike | None = None,
    ) -> "Module":
        """Read a module's file, or say with a FileError what is wrong with it.

        `model` is the factory of a network that intarsia has no name for, or such a network.
        `encoder` is the network or function of the user's own whose features the module reads:
        those that have a name are found when raw inputs come. `base` is what it is a change of, if
        it is one: by default what lies beside the file as base.safetensors, else a network, a state
        dict, a module, a path or a name, checked by its digest. `catalogue` and `origin` are what
        the module must have to be of use, checked where given. A module that is not healthy is a
        HealthWarning, unless it is to be `quiet`.
        """
        with file.reading(path):
            find = base if isinstance(base, BaseFinder) else BaseFinder(Path(path).parent, base)
            module = cls(**unpack(*file.read(path, KIND), as_model(model), encoder, find))
            _check_expected("catalogue", module.catalogue, catalogue and tuple(catalogue))
            _check_expected("origin", module.origin, origin)
            health = module.health
        if not quiet:
            warn(health, str(path))
        return module

    def packed(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The header's fields and the tensors as they are stored."""
        table, stored = pack(self.state, self.mask, self.base, self.low_rank)
        fields: dict[str, Any] = {
            "name": self.name,
            "rewarded": list(self.rewarded),
            "catalogue": list(self.catalogue),
            "architecture": self.architecture.to_json(),
            "scaling": plain(self.scaling.to_json(), "scaling"),
            "temperature": self.temperature,
            "origin": self.origin,
            "provenance": self.provenance,
            "tensors": table,
        }
        if self.encoder is not None:
            fields["encoder"] = self.encoder.to_json()
        if self.base is not None:
            fields["base"] = self.base.digest
        return fields, stored

    def __repr__(self) -> str:
        return f"Module({self.name!r}, {self.architecture}, density {self.density:.2%})"


def _check_classes(module: Module) -> None:
    name, catalogue, rewarded = module.name, module.catalogue, module.rewarded
    odd = [c for c in (name, *catalogue, *rewarded) if not (isinstance(c, str) and c)]
    if odd:
        raise ModelError(
            f"module {shortened(name)}: its name and its classes must be text, not empty, as '3' "
            f"is; {shortened(odd[0])} is not"
        )
    if not catalogue or len(set(catalogue)) < len(catalogue):
        raise ModelError(
            f"module {shortened(name)}: the catalogue must name each class once, at least one"
        )
    if not rewarded or len(set(rewarded)) < len(rewarded):
        raise ModelError(
            f"module {shortened(name)}: rewarded must name each class once, at least one"
        )
    known = set(catalogue)
    unknown = [c for c in rewarded if c not in known]
    if unknown:
        raise ModelError(
            f"module {shortened(name)} rewards {shortened(unknown[0])}, which is not in its "
            "catalogue"
        )
    outputs = module.architecture.outputs
    if outputs not in (len(catalogue), len(catalogue) + 1):
        raise ModelError(
            f"module {shortened(name)} has {outputs} outputs for a catalogue of {len(catalogue)}: "
            "expected "
            f"{len(catalogue)}, or {len(catalogue) + 1} with an explicit other"
        )
    if not 0 < module.temperature < math.inf:
        raise ModelError(
            f"module {shortened(name)} has temperature {module.temperature}: expected a number "
            "above 0"
        )


def _check_scaling(scaling: Scaling, shape: tuple[int, ...]) -> None:
    for key, tensor in (("shift", scaling.shift), ("scale", scaling.scale)):
        try:
            fits = np.broadcast_shapes(tensor.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ModelError(
                f"the scaling's {key} has shape {tuple(tensor.shape)}, which does not fit inputs "
                f"of shape {shape}: fit it on the inputs the module is for"
            )


def _check_encoder(name: str, encoder: Encoder | None, shape: tuple[int, ...]) -> None:
    if encoder is not None and shape != (encoder.features,):
        raise ModelError(
            f"module {shortened(name)} reads inputs of shape {shape}, its encoder "
            f"{shortened(encoder.text)} gives {encoder.features} features"
        )


def _check_tensors(
    module: str, state: Mapping[str, Tensor], mask: Mapping[str, Tensor], plan: Plan
) -> None:
    lacking, unknown = plan.keys() - state.keys(), state.keys() - plan.keys()
    if lacking or unknown:
        said = [f"lacks the tensor {min(lacking)!r}, which its model has"] if lacking else []
        said += [f"has the tensor {min(unknown)!r}, which its model has not"] if unknown else []
        prefix = min(unknown, default="").partition(".")[0] + "."
        if lacking and unknown == {prefix + name for name in plan}:
            said.append(f"leave out the {prefix!r} before every name")
        raise ModelError(f"module {shortened(module)} {'; '.join(said)}")
    for name, entry in plan.items():
        seen = (tuple(state[name].shape), state[name].dtype)
        if seen != (entry.shape, entry.dtype):
            advice = f": convert it by .to({entry.dtype})" if seen[0] == entry.shape else ""
            raise ModelError(
                f"module {shortened(module)}: tensor {name!r} is {seen[0]} {seen[1]}, "
                f"its model needs {entry.shape} {entry.dtype}{advice}"
            )
        if not is_finite(state[name]):
            raise ModelError(
                f"module {shortened(module)}: tensor {name!r} holds values that are not finite: "
                "it diverged; train it again with a lower learning rate"
            )
    for name, tensor in mask.items():
        if name not in plan or not plan[name].learned or tuple(tensor.shape) != plan[name].shape:
            raise ModelError(
                f"module {shortened(module)}: the mask {name!r} of shape {tuple(tensor.shape)} "
                "fits no "
                "parameter of its model"
            )


def _pruned(module: str, name: str, tensor: Tensor, mask: Tensor | None) -> Tensor:
    tensor = tensor.detach().cpu()
    if mask is None:
        return tensor.clone(memory_format=torch.contiguous_format)
    kept = tensor.masked_fill(~mask, 0).contiguous()  # a masked product leaves -0.0 behind
    if not torch.equal(kept, tensor):
        raise ModelError(
            f"module {shortened(module)}: {name!r} has values where its mask says pruned: "
            "multiply it by the mask first"
        )
    return kept


def _own_mask(mask: Tensor) -> Tensor:
    """A copy, of one byte where nothing is kept."""
    return mask.clone() if bool(mask.any()) else NOTHING.expand(mask.shape)


def _check_origin(module: str, origin: str, base: Base) -> None:
    if origin != base.digest:
        raise ModelError(
            f"module {shortened(module)} has the origin {shortened(origin)} and the base "
            f"{base.digest!r}: the base of a module is its origin"
        )


def _check_expected(what: str, stated: Any, expected: Any) -> None:
    if expected is not None and stated != expected:
        raise FileError(
            f"has {what} {shortened(stated)} where {shortened(expected)} was expected: "
            f"use a module trained with that {what}"
        )
