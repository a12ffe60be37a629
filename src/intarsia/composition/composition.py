"""Modules joined by an operator; the parts are remembered, so add and remove are exact."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intarsia.composition import composition_file as stored
from intarsia.composition.build import MergeOptions, build_merge
from intarsia.composition.checks import check_fit, composition_health, locate
from intarsia.composition.merge_context import BY_NAME, MergeContext, kept_samples
from intarsia.composition.operators import OPERATORS, Operator
from intarsia.composition.operators.inlay import inlay_size
from intarsia.composition.scale_search import ScaleSearch, with_settings
from intarsia.data import Split
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import CompositionError, LimitError, RecipeError, WiringError, nearest
from intarsia.limits import account, allocating
from intarsia.models import Model, as_model
from intarsia.modules import Bank, Health, Module, Predicting, logits_of
from intarsia.modules.classifier import Inputs, network_inputs
from intarsia.modules.compact import compact
from intarsia.modules.health import warn
from intarsia.objectives import VISIBILITIES
from intarsia.specs import Spec

AUTO = "auto"
# An inlay is block diagonal between hidden layers. It is the default while it holds at most
# ROOM times the numbers of its parts, or few enough not to matter.
ROOM, SMALL = 4, 4_000_000


def compose(
    modules: Iterable[Module] | Bank,
    operator: str | Mapping[str, Any] | Spec | Operator = "auto",
    *,
    samples: Any = None,
    align: str | None = None,
    recalibrate: bool = True,
    calibrate: bool = False,
) -> "Composition":
    """Join modules into one classifier without training.

    `operator` is one of OPERATORS, such as "sum", "inlay", "logits" or "ties(density=0.2)", or an
    operator itself, as `@operator` gives it. "auto" is the best one that the parts allow without a
    look at samples: their logits added, in one network (inlay) where one that holds them side by
    side is small, else apart (logits); the modules of several seeds are then an ensemble. Modules
    that each learned to tell their classes from all that came before
    (`visibility="past(amount=None)"`, `balance=0`) are joined by stick_breaking.

    `samples` are a few raw inputs that some ways of joining look at: Data (its validation part), a
    Split, or an array. At most 1000 are kept, and saved with the composition.

    For operators on weights, `align` permutes hidden units first, to match "weights" or
    "activations"; settings `scale="auto"` and `density="auto"` of theirs, as in
    "ties(density='auto', scale='auto')", become those that are best on labelled samples, which
    `report` has with all that were tried; with `recalibrate` the statistics of BatchNorm layers are
    recomputed from the samples. `calibrate` fits one scale and one offset per module on labelled
    samples.

    A composition, or a part of it, that is dead, undertrained or inconsistent is a HealthWarning;
    `composition.health` says more.
    """
    if isinstance(operator, Module | Bank | Composition):
        raise CompositionError(
            f"the operator is a {type(operator).__name__}: give all modules in one list, as in "
            "compose([a, b]), or compose([*a, *b]) of banks"
        )
    options = MergeOptions(align, recalibrate, calibrate)
    merged = Composition(modules, operator, samples=samples, options=options)
    names = [part.name for part in merged.parts]
    for key, what in BY_NAME.items():
        given = merged.operator.arguments.get(key)
        for name in given if isinstance(given, Mapping) else ():
            if name not in names:
                raise CompositionError(f"a {what} is given for {name!r}: {nearest(name, names)}")
    warn(merged.health, "what was joined")
    return merged


class Composition(Predicting):
    """An nn.Module from raw inputs to logits that remembers its parts, sorted by name.

    `add` and `remove` change it in place and return it; `+` and `-` make a new one. The result
    depends on the parts, the operator and the samples alone, not on the order or the way they came
    in, to the last bit. Weights trained further inside a composition are not part of its modules
    and go at the next change.
    """

    scales: Tensor | None
    offset: Tensor | None
    _health: Health | None

    def __init__(
        self,
        parts: Iterable[Module] | Bank,
        operator: str | Mapping[str, Any] | Spec | Operator = "auto",
        *,
        samples: Any = None,
        options: MergeOptions | None = None,
        search: ScaleSearch | None = None,
    ) -> None:
        super().__init__()
        self.options = options or MergeOptions()
        self.parts: tuple[Module, ...] = ()
        self.samples: Split | None = None
        given = list(parts) if isinstance(parts, Iterable) else [parts]
        if operator != AUTO and operator != {"name": AUTO}:
            self._start(given, OPERATORS.spec(operator), samples, search)
        elif self.options.align is not None:  # asked for where weights are to be added
            self._start(given, Spec("sum"), samples)
        else:
            self._start_best(given, samples)
        self.eval()

    def _start_best(self, parts: list[Module], samples: Any) -> None:
        chain = _chain(parts)
        if chain is not None:
            return self._start(parts, chain, samples)
        if _inlay_is_small(parts):
            with suppress(CompositionError, WiringError, LimitError), account() as taken:
                taken.room = taken.room or 1  # nobody asked for it: the limit is all it may take
                return self._start(parts, Spec("inlay"), samples)
        return self._start(parts, Spec("logits"), samples)

    def _start(
        self,
        parts: list[Module],
        operator: Spec,
        samples: Any,
        search: ScaleSearch | None = None,
    ) -> None:
        self.operator = operator
        self._build(parts, samples, search)

    def forward(self, x: Inputs) -> Tensor:
        if self.encoder is not None:  # once for all parts
            shape = self.parts[0].architecture.shape
            x = network_inputs(x, shape, self.encoder, self._place()[0])
        if self.apart:
            logits = [part(x) for part in self.networks]
            if self.scales is not None:
                logits = [z * scale for z, scale in zip(logits, self.scales, strict=True)]
            context = self._result.context
            if self.router is not None:
                context = replace(context, similarities=self.router(x))
            joined = self._how(logits, context, **self.operator.arguments)
        else:
            joined = self.networks[0](x)
        return joined if self.offset is None else joined + self.offset

    def add(self, *modules: Module) -> "Composition":
        """Join more modules; the composition stays as it was if one does not fit."""
        self._build((*self.parts, *modules))
        return self

    def remove(self, *keys: str | Module) -> "Composition":
        """Take modules out, by name, by the class they alone recognise, or themselves."""
        parts = list(self.parts)
        for key in keys:
            parts.remove(locate(parts, key))
        self._build(parts)
        return self

    def __add__(self, module: Module) -> "Composition":
        return self._like((*self.parts, module))

    def __sub__(self, key: str | Module) -> "Composition":
        gone = locate(self.parts, key)
        return self._like(part for part in self.parts if part is not gone)

    @property
    def joined(self) -> Module | None:
        """The one network that was made of the parts; None where their logits are joined."""
        return None if self.apart else self._result.modules[0]

    @property
    def apart(self) -> bool:
        """Whether every part keeps a network of its own, and their logits are joined."""
        return self._how.on == "logits"

    @property
    def in_blocks(self) -> bool:
        """Whether the parts' convolutions run side by side in one network, each by itself.

        The state of that network, with zeros between the blocks, is made when `joined` is asked
        for.
        """
        return self._result.blocks is not None

    def compact(self) -> Module:
        """The joined network without its dead units: smaller, with the same answers."""
        joined = self.joined
        if joined is None or self.offset is not None:
            what = "logits are joined" if joined is None else "it is calibrated"
            raise CompositionError(
                f"{self.operator} makes no network of its own to compact, since {what}: "
                'join the modules by "inlay", without calibration'
            )
        return compact(joined)

    @property
    def nonzero(self) -> int:
        """How many parameters survive in the network, or in all of them where logits are joined."""
        return self._result.nonzero

    @property
    def density(self) -> float:
        """The surviving fraction of these parameters."""
        return self.nonzero / max(1, self._result.parameters)

    @property
    def report(self) -> dict[str, Any]:
        """What was joined and how, with notes on what to be careful about."""
        facts = {
            "operator": str(self.operator),
            "paper": self._how.paper,
            "parts": [module.name for module in self.parts],
            "rewarded": list(self.rewarded),
            "density": self.density,
            "nonzero": self.nonzero,
            "notes": list(self._result.notes),
        }
        for key in ("calibration", "search"):
            record = getattr(self._result, key)
            facts |= {key: record.to_json()} if record else {}
        return facts

    @property
    def resolved(self) -> Spec:
        """The operator as it was called: with the scale and density that were found for "auto"."""
        search = self._result.search
        return self.operator if search is None else with_settings(self.operator, search.settings)

    @property
    def health(self) -> Health:
        """What is wrong with it as it was joined, and with its parts; `health.ok` if nothing."""
        if self._health is None:
            self._health = composition_health(
                self.parts, self._result.parameters, self.samples, lambda x: logits_of(self, x)
            )
        return self._health

    def save(self, path: str | Path) -> None:
        """Write parts and samples into one safetensors file, whole or not at all."""
        search = self._result.search
        stored.write(
            path, self.parts, self.operator, self.options, self.samples, self.health, search
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Model | nn.Module | None = None,
        *,
        quiet: bool = False,
        encoder: EncoderLike | None = None,
    ) -> "Composition":
        """Read the parts and join them again, to the same bits; else as Module.load.

        What was found for `scale="auto"` or `density="auto"` is not searched again.
        """
        with stored.reading(path):
            parts, operator, options, samples, search = stored.read(path, as_model(model), encoder)
            merged = cls(parts, operator, samples=samples, options=options, search=search)
        if not quiet:
            warn(merged.health, str(path))
        return merged

    def extra_repr(self) -> str:
        return f"{self.operator} of {', '.join(module.name for module in self.parts)}"

    @property
    def _how(self) -> Operator:
        how: Operator = OPERATORS[self.operator.name]
        return how

    def _like(self, parts: Iterable[Module]) -> "Composition":
        made = Composition(parts, self.operator, samples=self.samples, options=self.options)
        return made.to(*self._place()).train(self.training)

    def _place(self) -> tuple[torch.device, torch.dtype]:
        """Where and as what the network's numbers lie, which a change leaves as it was."""
        tensors = (t for t in [*self.parameters(), *self.buffers()] if t.is_floating_point())
        one = next(tensors, torch.zeros(()))
        return one.device, one.dtype

    def _build(
        self, modules: Iterable[Module], given: Any = None, search: ScaleSearch | None = None
    ) -> None:
        """Check the parts, join them, and only then change anything.

        They may look at the samples given, or at those that are kept already.
        """
        how = self._how
        parts = check_fit(modules, "weights" if how.modules else how.on, bool(self.options.align))
        samples = self.samples if given is None else kept_samples(given, parts[0])
        with allocating("joining them"):
            result = build_merge(parts, self.operator, self.options, samples, search)
            networks = result.networks()
        place = self._place() if self.parts else None
        self.networks = nn.ModuleList(networks).train(self.training)
        self.router = result.router
        self.register_buffer("scales", result.scales, persistent=False)
        self.register_buffer("offset", result.offset, persistent=False)
        if place is not None:
            self.to(*place)
        self.parts, self.samples, self._result = parts, samples, result
        self._health = None
        self.catalogue, self.temperature = parts[0].catalogue, parts[0].temperature
        self.rewarded = result.rewarded
        self.encoder, self.columns = parts[0].encoder, parts[0].columns


def _chain(modules: Iterable[Any]) -> Spec | None:
    """stick_breaking, where each module learned how probable its classes are among those so far.

    So it did where it saw all that came before, one order for all, and samples counted alike.
    """
    orders = [_arrival(module) for module in modules]
    if len(orders) < 2 or orders[0] is None or any(order != orders[0] for order in orders):
        return None
    return Spec("stick_breaking", orders[0])


def _arrival(module: Any) -> dict[str, Any] | None:
    """The setting of stick_breaking that a module's recipe asks for; None if it is of no chain."""
    recipe = module.provenance.get("recipe") if isinstance(module, Module) else None
    if not isinstance(recipe, Mapping) or recipe.get("balance") != 0:
        return None
    try:
        seen = VISIBILITIES.settings(recipe.get("visibility", ""))
    except RecipeError:  # of a file that somebody else wrote
        return None
    if "order" not in seen or seen.get("amount", 0) is not None:
        return None
    return {} if seen["order"] is None else {"order": seen["order"]}


def _inlay_is_small(modules: Iterable[Module]) -> bool:
    """Whether an inlay of these modules is worth its room."""
    try:
        context = MergeContext(check_fit(modules, "units", False))
        room = max(SMALL, ROOM * sum(part.parameters for part in context.parts))
        return inlay_size(context) <= room
    except (CompositionError, WiringError):
        return False  # what is wrong with the modules themselves, logits will say
