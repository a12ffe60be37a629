"""Profiles of class modules: how sure each layer is, read through the module's tuned lens."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from intarsia.composition import Composition
from intarsia.data import Data, Split, subsample
from intarsia.data.dataset import check_same_encoder
from intarsia.data.negatives import NEGATIVES
from intarsia.errors import DataError, ModelError, shortened
from intarsia.files import plain, stream
from intarsia.lens.entropies import check_alpha
from intarsia.lens.tuned_lens import TunedLens, entropies, tune
from intarsia.measure.evaluation import Renderable
from intarsia.measure.logits import auroc
from intarsia.modules import Module
from intarsia.modules.classifier import network_inputs
from intarsia.specs import find_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group

ROWS = 10_000  # samples of a split that are looked at, at most
NOISE, SHUFFLED = "noise", "shuffled"
STRANGERS = (NOISE, SHUFFLED)
SURE = 2.0  # standard errors that a mean change has to be from 0 to have a sign
REWARDED, OTHER = "rewarded", "other"

Source = Module | Composition | Iterable[Module]


@dataclass(frozen=True)
class LayerProfile:
    """One layer of one module on samples held out; nan is a mean over nothing, None in JSON.

    shape, features    of what the layer gives for a sample; of what its map reads of it
    explained          the fraction of the variance of the module's logits that the map gives
    agreed             of rewarded samples, how often its largest logit is the module's
    rewarded, other    mean entropy in nats by the samples' classes
    auc_other          how often a sample of another class has the larger entropy
    auc_wrong          of rewarded samples, how often one that the module gets wrong has
    strangers          by kind, how often a stranger has a larger entropy than a rewarded sample
    change             from the layer before, by the samples' classes: the sign of the mean change
                       of entropy, 1 expands, -1 prunes, 0 is within two standard errors of none
    """

    name: str
    shape: tuple[int, ...]
    features: int
    ridge: float | None  # None of the module's own logits
    explained: float
    agreed: float
    rewarded: float
    other: float
    auc_other: float
    auc_wrong: float
    strangers: Mapping[str, float]
    change: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class ModuleProfile:
    """The layers of one module, from its inputs to its logits."""

    name: str
    rewarded: tuple[str, ...]
    layers: tuple[LayerProfile, ...]
    fitted_on: int
    samples: Mapping[str, int]  # rewarded, other, and rewarded ones that it gets wrong
    ceiling: float  # log C

    def __iter__(self) -> Iterator[LayerProfile]:
        return iter(self.layers)

    def __getitem__(self, name: str) -> LayerProfile:
        """A layer by its name."""
        return find_named("layer", self.layers, name)


@dataclass(frozen=True)
class JointLayer:
    """One layer of several modules together: for a sample the surest of them answers.

    right, wrong    mean entropy of the module that wins by its own logits, by whether it is right
    auc_wrong       how often one that is wrong has the larger entropy there
    strangers       how often the lowest entropy over modules is larger for a stranger
    """

    name: str
    right: float
    wrong: float
    auc_wrong: float
    strangers: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class TunedProfiles(Renderable):
    """The profiles of modules, and of all of them together where there are several."""

    modules: tuple[ModuleProfile, ...]
    together: tuple[JointLayer, ...]  # none where modules differ in their layers, or there is one
    wrong: int  # samples on which the surest module is wrong
    samples: int  # that were held out
    alpha: float = 1.0  # Renyi's order

    def __iter__(self) -> Iterator[ModuleProfile]:
        return iter(self.modules)

    def __getitem__(self, name: str) -> ModuleProfile:
        """A module's profile by its name."""
        return find_named("module", self.modules, name)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of layers, of all modules in their order."""
        return tuple(dict.fromkeys(layer.name for one in self.modules for layer in one))

    def mean(self, key: str, layer: str) -> float:
        """The mean over modules of one of a layer's numbers; a stranger's kind counts as one."""
        values = [
            float(own.strangers[key] if key in own.strangers else getattr(own, key))
            for module in self.modules
            for own in module
            if own.name == layer
        ]
        known = [value for value in values if math.isfinite(value)]
        return float(np.mean(known)) if known else math.nan

    def signs(self, layer: str, group: str) -> dict[str, int]:
        """How many modules expand, prune, or do neither at a layer."""
        own = [o.change[group] for m in self.modules for o in m if o.name == layer and o.change]
        return {"expand": own.count(1), "prune": own.count(-1), "neither": own.count(0)}

    def to_json(self) -> dict[str, Any]:
        modules = [{**vars(one), "layers": list(map(vars, one.layers))} for one in self.modules]
        alpha: float | str = self.alpha if math.isfinite(self.alpha) else "inf"
        about = {"samples": self.samples, "alpha": alpha, "wrong": self.wrong, "modules": modules}
        result: dict[str, Any] = plain(
            {**about, "together": list(map(vars, self.together))}, "profiles"
        )
        return result

    def figure(self, title: str = "entropy through the layers") -> "Figure":
        """Mean entropy of rewarded and of other classes by layer, with the spread over modules."""
        from intarsia.plots import entropy_by_layer

        bands: dict[str, dict[str, tuple[float, float]]] = {}
        for group, label in ((REWARDED, "rewarded classes"), (OTHER, "other classes")):
            for layer in self.layers:
                own = [getattr(o, group) for m in self.modules for o in m if o.name == layer]
                known = [value for value in own if math.isfinite(value)]
                if known:
                    spread = float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
                    bands.setdefault(label, {})[layer] = (float(np.mean(known)), spread)
        return entropy_by_layer(bands, ceiling=self.modules[0].ceiling, title=title)

    def __rich__(self) -> "Group":
        from rich.console import Group

        tables = [self._table()]
        if self.together:
            tables.append(self._joint_table())
        return Group(*tables)

    def _table(self) -> Any:
        from rich.text import Text

        kinds = list(self.modules[0].layers[0].strangers)
        keys = (REWARDED, OTHER, "auc_other", "auc_wrong", *kinds, "explained", "agreed")
        columns = ["rewarded", "other", "AUC other", "AUC wrong"]
        columns += [*(f"AUC {kind}" for kind in kinds), "R2", "agreed"]
        columns += ["rewarded change", "other change"]
        drawn = _drawn(columns)
        for layer in self.layers:
            numbers = [_three(self.mean(key, layer)) for key in keys]
            drawn.add_row(Text(layer), *numbers, *self._change_texts(layer))
        count = len(self.modules)
        who = "one module" if count == 1 else f"means over {count} modules"
        drawn.caption = (
            f"{who}, {self.samples:,} samples; entropies in nats"
            f"{f', alpha {self.alpha:g},' if self.alpha != 1 else ''} of at most "
            f"{self.modules[0].ceiling:.3f}; R2: of the logits' variance; change from the layer "
            "above: modules that expand (+), prune (-), do neither (=)"
        )
        return drawn

    def _change_texts(self, layer: str) -> list[str]:
        """Of rewarded and of other classes, how many modules expand, prune or do neither."""
        texts = []
        for group in (REWARDED, OTHER):
            counts = self.signs(layer, group)
            marks = zip("+-=", counts.values(), strict=True)
            shown = [f"{n if len(self.modules) > 1 else ''}{mark}" for mark, n in marks if n]
            texts.append(" ".join(shown))
        return texts

    def _joint_table(self) -> Any:
        from rich.text import Text

        kinds = list(self.together[0].strangers)
        drawn = _drawn(("right", "wrong", "AUC wrong", *(f"AUC {kind}" for kind in kinds)))
        for layer in self.together:
            values = [layer.right, layer.wrong, layer.auc_wrong, *layer.strangers.values()]
            drawn.add_row(Text(layer.name), *map(_three, values))
        drawn.caption = (
            f"all modules together: the surest answers; wrong on {self.wrong:,} of {self.samples:,}"
        )
        return drawn


def _three(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _drawn(columns: Sequence[str]) -> Any:
    from rich import box
    from rich.table import Table

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    drawn.add_column("layer", overflow="fold")
    for name in columns:
        drawn.add_column(name, justify="right", overflow="fold")
    return drawn


def tuned(
    source: Source,
    data: Data,
    alpha: float = 1.0,
    *,
    ridge: float | None = None,
    rows: int = ROWS,
    strangers: Sequence[str] = STRANGERS,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> TunedProfiles:
    """Fit a tuned lens to every module on training samples, and measure it on test samples.

    `source` is a module, a bank, several modules, or a composition: one network where it is one,
    else its parts. Labels of the data are places in the modules' catalogue. At most `rows` samples
    of each split are looked at, evenly spaced. Strangers are "noise" of the samples' range, and
    test samples whose numbers are "shuffled", each by an order of its own. `alpha` is the order of
    Renyi's entropy.
    """
    order = check_alpha(alpha)
    models = _models(source)
    few = _checked(models[0], data, rows)
    if isinstance(strangers, str) or any(kind not in STRANGERS for kind in strangers):
        bad = strangers if isinstance(strangers, str) else next(
            kind for kind in strangers if kind not in STRANGERS
        )  # fmt: skip
        raise DataError(f"unknown strangers {shortened(bad)}: give some of {', '.join(STRANGERS)}")
    test = few.test
    made = _strangers(test.x, strangers, seed)
    profiles, own, others = [], [], []
    for model in models:
        lens = tune(model, few, ridge=ridge, device=device)
        logits = lens.logits(test.x)
        foreign = {kind: lens.entropies(x, alpha=order) for kind, x in made.items()}
        levels = entropies(logits, lens.temperature, order)
        profiles.append(_profile(lens, logits, levels, test.y, foreign))
        own.append((lens, logits, levels))
        others.append(foreign)
    together, wrong = _together(own, others, test.y)
    return TunedProfiles(tuple(profiles), together, wrong, len(test), order)


def _models(source: Source) -> list[Module | Composition]:
    if isinstance(source, Module):
        return [source]
    if isinstance(source, Composition):
        return list(source.parts) if source.apart else [source]
    given: list[Any] = list(source) if isinstance(source, Iterable) else [source]
    if not given:
        raise DataError("there is no module to look at: give at least one")
    for one in given:
        if not isinstance(one, Module):
            raise ModelError(
                f"{shortened(one)} is not a module: give modules, a bank or a composition"
            )
        if one.catalogue != given[0].catalogue:
            raise ModelError(
                f"modules {given[0].name!r} and {one.name!r} have different catalogues: look at "
                "them one by one"
            )
    return given


def _checked(model: Module | Composition, data: Data, rows: int) -> Data:
    """At most so many samples of each split, as the model's network reads them."""
    if not isinstance(data, Data):
        raise DataError(
            f"a {type(data).__name__} has no training samples beside those held out: give Data, "
            "as load_data makes it"
        )
    if type(rows) is not int or rows < 2:
        raise DataError(f"rows is {shortened(rows)}: expected a whole number from 2")
    if data.catalogue != model.catalogue:
        raise DataError(
            f"{data.name} has the classes {shortened(list(data.catalogue))} and the modules' "
            f"catalogue is {shortened(list(model.catalogue))}: give the data they were trained on"
        )
    if not len(data.test):
        raise DataError(f"{data.name} has no test samples to measure on")
    check_same_encoder(data, model.encoder)
    first = model.parts[0] if isinstance(model, Composition) else model

    def read(split: Split) -> Split:
        few = subsample(split, rows)
        if not len(few):
            return few
        x = network_inputs(few.x, first.architecture.shape, model.encoder)
        return Split(x.cpu(), few.y.cpu())

    train, validation, test = map(read, (data.train, data.validation, data.test))
    return replace(data, train=train, validation=validation, test=test, encoder=model.encoder)


def _strangers(x: Tensor, kinds: Sequence[str], seed: int) -> dict[str, Tensor]:
    """As many as samples; whole numbers, such as tokens, have no noise."""
    made: dict[str, Tensor] = {}
    for kind in kinds:
        generator = torch.Generator().manual_seed(stream("lens strangers", kind, seed))
        if kind == SHUFFLED:
            order = torch.rand(len(x), x[0].numel(), generator=generator).argsort(1)
            made[kind] = x.flatten(1).gather(1, order).reshape(x.shape)
        elif x.dtype != torch.int64:
            made[kind] = NEGATIVES.call(
                NEGATIVES.spec("noise(1.0)"), samples=x.float(), generator=generator
            )
    return made


def _profile(
    lens: TunedLens, logits: Tensor, levels: Tensor, labels: Tensor, foreign: Mapping[str, Tensor]
) -> ModuleProfile:
    """What is measured of one module; `logits` are L x N x C, `levels` their entropies L x N,
    `foreign` those by kind.
    """
    places = torch.tensor([lens.catalogue.index(name) for name in lens.rewarded])
    mine = torch.isin(labels, places)
    wrong = mine & (logits[-1].argmax(1) != labels)
    layers = []
    for place, (name, h) in enumerate(zip(lens.layers, levels, strict=True)):
        steps = {}
        if place:
            change = h - levels[place - 1]
            steps = {REWARDED: _sign(change[mine]), OTHER: _sign(change[~mine])}
        own = lens.maps[place] if place < len(lens.maps) else None
        classes = (len(lens.catalogue),)
        layers.append(
            LayerProfile(
                name=name,
                shape=own.shape if own else classes,
                features=own.features if own else classes[0],
                ridge=own.ridge if own else None,
                explained=_explained(logits[place], logits[-1]),
                agreed=_mean((logits[place].argmax(1) == logits[-1].argmax(1))[mine]),
                rewarded=_mean(h[mine]),
                other=_mean(h[~mine]),
                auc_other=auroc(h[mine], h[~mine]),
                auc_wrong=auroc(h[mine & ~wrong], h[wrong]),
                strangers={kind: auroc(h[mine], own_h[place]) for kind, own_h in foreign.items()},
                change=steps,
            )
        )
    counts = {REWARDED: int(mine.sum()), OTHER: int((~mine).sum()), "wrong": int(wrong.sum())}
    ceiling = math.log(len(lens.catalogue))
    return ModuleProfile(lens.name, lens.rewarded, tuple(layers), lens.samples, counts, ceiling)


def _together(
    own: Sequence[tuple[TunedLens, Tensor, Tensor]],
    foreign: Sequence[Mapping[str, Tensor]],
    labels: Tensor,
) -> tuple[tuple[JointLayer, ...], int]:
    """All modules layer by layer; a sample's answer is that of the module surest at its logits."""
    names = own[0][0].layers
    if len(own) < 2 or any(lens.layers != names for lens, *_ in own):
        return (), 0
    levels = torch.stack([h for *_, h in own])  # K, L, N
    surest = levels[:, -1].argmin(0)
    samples = torch.arange(len(labels))
    answers = torch.stack([z[-1].argmax(1) for _, z, _ in own])[surest, samples]
    wrong = answers != labels
    lowest = levels.amin(0)
    layers = []
    for place, name in enumerate(names):
        h = levels[surest, place, samples]
        strange = {
            kind: auroc(lowest[place], torch.stack([one[kind][place] for one in foreign]).amin(0))
            for kind in foreign[0]
        }
        right = auroc(h[~wrong], h[wrong])
        layers.append(JointLayer(name, _mean(h[~wrong]), _mean(h[wrong]), right, strange))
    return tuple(layers), int(wrong.sum())


def _sign(change: Tensor) -> int:
    """Of a mean, where it is more than two standard errors from 0."""
    if len(change) < 2:
        return 0
    mean, error = float(change.mean()), float(change.std()) / math.sqrt(len(change))
    return int(np.sign(mean)) if abs(mean) > max(SURE * error, 1e-9) else 0


def _explained(made: Tensor, own: Tensor) -> float:
    spread = float((own - own.mean(0)).square().sum())
    return 1 - float((made - own).square().sum()) / spread if spread > 0 else math.nan


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else math.nan
