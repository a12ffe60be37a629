"""The fresh-head probe: what part of a shortfall does a new readout recover?"""

import hashlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from intarsia.composition import Composition
from intarsia.data import Data, Split, check_same_encoder
from intarsia.errors import (
    DataError,
    ModelError,
    RecipeError,
    comma_separated,
    nearest,
    shortened,
)
from intarsia.files import plain
from intarsia.measure.evaluation import Renderable, format_number
from intarsia.measure.probe.contract import FRESH_HEAD, Contract, states
from intarsia.measure.probe.head_training import (
    CachedFeatures,
    HeadTraining,
    TrainedHead,
    WholeNetwork,
    train_head,
)
from intarsia.measure.probe.joint_training import train_joint
from intarsia.measure.probe.readout import Readout, readout_of
from intarsia.modules import Classifier, Module, Predicting, logits_of
from intarsia.modules.classifier import network_inputs
from intarsia.specs import seed_numbers

if TYPE_CHECKING:
    from rich.console import Group

ProbeProtocol = Literal["cached", "literal"]
TRAIN = "train"  # in place of a joint reference: by the recipe of the modules
Joint = float | nn.Module | Module | Literal["train"]
SPLITS = ("train", "validation", "test")
LEAKED = 0.5  # of the test rows: data sets have some rows twice, and none has half of them


@dataclass(frozen=True)
class ProbeScore:
    """Values, one per seed or network, with their mean and standard deviation."""

    values: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        """With n - 1 in the denominator; nan of a single value, and where values are."""
        known = self.n > 1 and all(map(math.isfinite, self.values))
        return statistics.stdev(self.values) if known else math.nan

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "sd": self.sd, "n": self.n, "values": self.values}

    def __str__(self) -> str:
        spread = "" if math.isnan(self.sd) else f" ± {self.sd:.4f}"
        return f"{format_number(self.mean)}{spread} (n = {self.n})"


@states(FRESH_HEAD)
@dataclass(frozen=True, eq=False, repr=False)
class FreshHead(Renderable):
    """What `fresh_head` measured: accuracies on the test samples of all classes.

    `recovered` is (fresh - native) / (joint - native), one value per seed with the means of native
    and joint; None without a joint reference, nan where joint is not above native.
    """

    native: ProbeScore  # the network with its own head
    fresh: ProbeScore  # with a new head, one value per seed
    joint: ProbeScore | None  # of networks trained on all classes together
    data: str
    head: str  # the layer in whose place the new one came
    protocol: ProbeProtocol
    training: HeadTraining
    seeds: tuple[int, ...]
    epochs: tuple[int, ...]  # the one kept of each seed, counted from 1
    unfinished: int  # heads that more epochs might have made better
    samples: dict[str, int]  # by split
    repeated: int  # test samples that are also among those trained or validated on
    joint_recipe: Mapping[str, Any] | None = None  # of the joint network that was trained here
    contract: Contract = FRESH_HEAD

    @property
    def gap(self) -> ProbeScore:
        """fresh - native: the part of the score that a new readout adds."""
        return ProbeScore(tuple(value - self.native.mean for value in self.fresh.values))

    @property
    def recovered(self) -> ProbeScore | None:
        """The fraction of the shortfall against joint that a new readout recovers."""
        if self.joint is None:
            return None
        shortfall = self.joint.mean - self.native.mean
        return ProbeScore(
            tuple(g / shortfall if shortfall > 0 else math.nan for g in self.gap.values)
        )

    @property
    def doubt(self) -> str | None:
        """Why fresh may be too low, and what to do; None where all heads were trained enough."""
        if not self.unfinished:
            return None
        given = self.training.epochs
        why = (
            "the validation loss was still falling at the end: give a higher learning_rate"
            if given is None
            else f"the last of {given} epochs was the best: give more epochs, or leave epochs out "
            "to train until the validation loss stops improving"
        )
        return f"Fresh may be too low. For {self.unfinished} of {self.fresh.n} heads {why}."

    @property
    def small_shortfall(self) -> str | None:
        """Why the recovered fraction says little; None where joint is clearly above native."""
        if self.joint is None:
            return None
        shortfall, tests = self.joint.mean - self.native.mean, self.samples["test"]
        variance = sum(a * (1 - a) / tests for a in (self.joint.mean, self.native.mean))
        if not 0 < shortfall < 2 * math.sqrt(variance):
            return None
        return (
            f"The shortfall, joint - native, is {format_number(shortfall)}, which {tests} test "
            "samples hardly tell from none: the recovered fraction says little."
        )

    def rows(self) -> list[tuple[str, ProbeScore | None]]:
        """What was measured, by name, in the order of tables."""
        return [
            ("native", self.native),
            ("fresh", self.fresh),
            ("joint", self.joint),
            ("fresh - native", self.gap),
            ("recovered fraction", self.recovered),
        ]

    def to_json(self) -> dict[str, Any]:
        scores = {
            name: None if score is None else score.to_json()
            for name, score in (*self.rows()[:3], ("gap", self.gap), ("recovered", self.recovered))
        }
        facts = {key: getattr(self, key) for key in ("data", "head", "protocol", "seeds", "epochs")}
        keys = ("unfinished", "samples", "repeated", "joint_recipe")
        more = {key: getattr(self, key) for key in keys}
        training = {"training": asdict(self.training)}
        contract = {"contract": self.contract.to_json()}
        return plain({**scores, **facts, **training, **more, **contract}, "fresh head")

    def __rich__(self) -> "Group":
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for heading in ("", "accuracy", "sd", "n"):
            table.add_column(heading, justify="right" if heading else "left")
        for name, score in self.rows():
            numbers = (score.mean, score.sd) if score else (None, None)
            table.add_row(name, *map(format_number, numbers), str(score.n) if score else "-")
        lines = [Text.assemble((f"{k}: ", "bold"), v) for k, v in self.contract.labelled().items()]
        return Group(Text(self._summary()), table, *lines)

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {score}" for name, score in self.rows() if score)
        return f"FreshHead({scores})\n{self.contract}"

    def _summary(self) -> str:
        text = f"fresh head in place of {self.head!r}, {self.protocol}, on {self.data}: "
        text += ", ".join(f"{count} {split}" for split, count in self.samples.items())
        if self.repeated:
            text += f" ({self.repeated} of these seen before)"
        if self.joint_recipe is not None:
            text += f"; joint trained here for {self.joint_recipe['epochs']} epochs"
        return "\n".join([text, *filter(None, (self.doubt, self.small_shortfall))])


@states(FRESH_HEAD)
def fresh_head(
    model: nn.Module | Module,
    data: Data,
    *,
    head: str | None = None,
    joint: Joint | Sequence[Joint] | None = None,
    protocol: ProbeProtocol = "cached",
    epochs: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float = 1e-4,
    batch: int = 64,
    seeds: int | Sequence[int] = 1,
    device: str = "auto",
) -> FreshHead:
    """Train a new last layer on a frozen network, and see what part of a shortfall it recovers.

    `model` is a composition in one network, a module, a classifier, or any network that ends with
    a linear layer, merged by whatever means. A network that is not intarsia's gets raw inputs as
    float32; put it in a Classifier to scale them. The layer that makes the logits is found by
    running the network; `head="fc"` names it.

    `joint` is what was reached by training on all classes together: an accuracy, a network, or
    several of either. "train" trains one here by the recipe of the model's modules, which they
    know: see `train_joint`.

    "cached" computes the features of the frozen network once, for all seeds; "literal" runs the
    whole network on every batch. Both draw the same batches from the same seeds, and agree to
    rounding. Inputs are not augmented. `seeds` are how many heads, or which.

    Without `epochs` a head is trained until it stops getting better on validation samples, on
    features that are centred and brought to one size (see HeadTraining), by a learning rate of
    1e-2. `epochs=10` is the paper's way: 10 epochs on features as they are, by 1e-3.

    The training split trains, the validation split chooses the epoch, the test split is looked at
    once. Data of which half of the test samples are among the others is refused.
    """
    usual = 1e-2 if epochs is None else HeadTraining.learning_rate
    rate = usual if learning_rate is None else learning_rate
    how = HeadTraining(epochs, rate, weight_decay, batch)
    numbers = seed_numbers(seeds)
    if protocol not in get_args(ProbeProtocol):
        raise RecipeError(
            f"protocol is {shortened(protocol)}: {nearest(protocol, get_args(ProbeProtocol))}"
        )
    if not isinstance(data, Data):
        raise DataError(
            f"a fresh head cannot be trained on a {type(data).__name__}: give Data, whose three "
            "splits train, choose and test it, as load_data makes it"
        )
    splits = _labelled(model, data)
    repeated = _check_apart(data.name, splits)
    readout = readout_of(model, splits["train"].x, head)
    classes = _check_width(readout, data)
    references, recipe = _joint_scores(joint, model, data, device)
    with _placed(readout, device) as place:
        native, heads = _probed(readout, splits, classes, protocol, how, numbers, place)
    return FreshHead(
        native=ProbeScore((native,)),
        fresh=ProbeScore(tuple(trained.test for trained in heads)),
        joint=references,
        data=data.name,
        head=readout.name,
        protocol=protocol,
        training=how,
        seeds=numbers,
        epochs=tuple(trained.epoch for trained in heads),
        unfinished=sum(not trained.finished for trained in heads),
        samples={name: len(split) for name, split in splits.items()},
        repeated=repeated,
        joint_recipe=recipe,
    )


def _probed(
    readout: Readout,
    splits: dict[str, Split],
    classes: int,
    protocol: ProbeProtocol,
    how: HeadTraining,
    seeds: Sequence[int],
    device: torch.device,
) -> tuple[float, list[TrainedHead]]:
    """The native accuracy on test samples, and a new head for each seed."""
    labels = {name: split.y.to(device) for name, split in splits.items()}
    width = readout.layer.in_features
    if protocol == "cached":
        pairs = {name: readout.features(split.x) for name, split in splits.items()}
        for name, (_, made) in pairs.items():
            _check_finite(made, f"the network for {name} samples")
        logits = pairs["test"][1]
        answers: Any = CachedFeatures({name: pair[0] for name, pair in pairs.items()})
        frozen: Any = nullcontext()
    else:
        logits = readout.features(splits["test"].x)[1]
        _check_finite(logits, "the network for test samples")
        answers = WholeNetwork(readout, {name: split.x for name, split in splits.items()})
        frozen = answers.frozen()
    if readout.offset is not None:
        logits = logits + readout.offset.to(logits)
    native = _hits(logits, labels["test"])
    with frozen:
        heads = [train_head(answers, width, classes, labels, how, seed) for seed in seeds]
    return native, heads


def _labelled(model: nn.Module | Module, data: Data) -> dict[str, Split]:
    """The splits as the model reads them, with labels that are places in its catalogue."""
    splits = {}
    for name in SPLITS:
        split: Split = getattr(data, name)
        if not len(split):
            raise DataError(f"{data.name} has no {name} samples: a fresh head needs all three")
        outside = split.y[(split.y < 0) | (split.y >= data.classes)]
        if len(outside):
            raise DataError(
                f"{data.name}: the {name} split has the label {int(outside[0])}, outside the "
                f"catalogue of {data.classes} classes: give a label from 0 to {data.classes - 1} "
                "for every row"
            )
        splits[name] = split
    if not isinstance(model, Module | Predicting):
        return splits
    check_same_encoder(data, model.encoder)
    places = _places(model, data)
    return {
        name: Split(_encoded(model, split.x), places[split.y.cpu()])
        for name, split in splits.items()
    }


def _places(model: Module | Predicting, data: Data) -> Tensor:
    places = data.labels_in(model.catalogue)
    if bool((places < 0).any()):
        unknown = data.catalogue[int((places < 0).nonzero()[0])]
        raise DataError(
            f"{data.name} has the class {unknown!r}, which is not in the model's catalogue "
            f"({comma_separated(model.catalogue)}): leave it out with load_data(..., classes=[...])"
        )
    return places


def _encoded(model: Module | Predicting, x: Tensor) -> Tensor:
    """Raw inputs as features, where the model reads those of an encoder: once for all batches."""
    if model.encoder is None:
        return x
    if isinstance(model, Module):
        shape = model.architecture.shape
    else:
        parts = model.networks[0] if isinstance(model, Composition) else model
        assert isinstance(parts, Classifier)
        shape = parts.shape
    return network_inputs(x, shape, model.encoder)


def _check_apart(name: str, splits: dict[str, Split]) -> int:
    """How many test rows are among those trained or validated on; too many are refused."""
    seen = {row for part in ("train", "validation") for row in _digests(splits[part].x)}
    repeated = sum(row in seen for row in _digests(splits["test"].x))
    if repeated >= LEAKED * len(splits["test"]):
        raise DataError(
            f"{name}: {repeated} of {len(splits['test'])} test samples are among its training and "
            "validation samples: a head trained on test data measures nothing; keep them apart"
        )
    return repeated


def _digests(x: Tensor) -> Iterator[bytes]:
    rows = x.detach().cpu().contiguous().flatten(1).numpy()
    return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in rows)


def _check_width(readout: Readout, data: Data) -> int:
    """The classes that the new head is for: the model's catalogue, or that of the data."""
    width, model = readout.layer.out_features, readout.model
    if isinstance(model, Classifier):  # which has checked its own, and may have an explicit other
        return len(model.catalogue)
    if width != data.classes:
        raise ModelError(
            f"the head {readout.name!r} has {width} outputs and {data.name} has {data.classes} "
            "classes: give the network that was made for these classes, or data of its own"
        )
    return width


def _joint_scores(
    joint: Joint | Sequence[Joint] | None, model: nn.Module | Module, data: Data, device: str
) -> tuple[ProbeScore | None, Mapping[str, Any] | None]:
    """The joint references, and the recipe of what was trained for them here."""
    if joint is None:
        return None, None
    given = list(joint) if isinstance(joint, list | tuple) else [joint]
    if not given:
        raise RecipeError("joint is empty: give an accuracy, a network, several, or None")
    recipe = None
    if any(isinstance(one, str) and one == TRAIN for one in given):
        trained = train_joint(model, data, device)
        recipe = trained.provenance["recipe"]
        given = [trained if isinstance(one, str) and one == TRAIN else one for one in given]
    return ProbeScore(tuple(_joint_accuracy(one, data) for one in given)), recipe


def _joint_accuracy(joint: Any, data: Data) -> float:
    if isinstance(joint, nn.Module | Module):
        split = _labelled(joint, data)["test"]
        network = joint.to_module() if isinstance(joint, Module) else joint
        logits = logits_of(network, split.x)
        classes = len(joint.catalogue) if isinstance(joint, Module | Predicting) else data.classes
        if logits.dim() != 2 or logits.shape[1] != classes:
            raise ModelError(
                f"the joint network gives logits of shape {tuple(logits.shape)}: expected "
                f"N x {classes} for the classes of {data.name}"
            )
        _check_finite(logits, "the joint network")
        return _hits(logits, split.y)
    if isinstance(joint, bool) or not isinstance(joint, Real) or not 0 <= float(joint) <= 1:
        raise RecipeError(
            f"joint is {shortened(joint)}: expected an accuracy from 0 to 1, a network or {TRAIN!r}"
        )
    return float(joint)


def _check_finite(logits: Tensor, what: str) -> None:
    """A network answers NaN with a class like any other."""
    if not torch.isfinite(logits).all():
        raise DataError(f"the logits of {what} hold values that are not finite: it diverged")


def _hits(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels.to(logits.device)).double().mean())


@contextmanager
def _placed(readout: Readout, device: str) -> Iterator[torch.device]:
    """The network on a device, and afterwards where it was; auto leaves it on a GPU it is on.

    A network that is split over devices stays as it is: moved back whole, it would be on one.
    """
    from intarsia.training.job import device_of

    before = readout.layer.weight.device
    tensors = (*readout.model.parameters(), *readout.model.buffers())
    if device == "auto" and any(tensor.device != before for tensor in tensors):
        yield before
        return
    place = before if device == "auto" and before.type != "cpu" else device_of(device)
    readout.model.to(place)
    try:
        yield place
    finally:
        readout.model.to(before)
