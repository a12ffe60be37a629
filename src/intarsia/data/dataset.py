"""What training and measuring read: three splits of raw inputs, a catalogue and a scaling."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from intarsia.data.scaling import Scaling
from intarsia.encoders import Encoder
from intarsia.errors import DataError, comma_separated, shortened
from intarsia.files import digest_of

SMALLER = (torch.uint8, torch.int8, torch.int16, torch.int32)  # than int64, of whole numbers


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Raw inputs and labels.

    x: N x *shape; images channel-first, tables float32 (N, D), or int64 if their scaling is none.
    y: int64 (N), indices into the catalogue; other whole numbers become int64.
    catalogue: what the labels are called; a split of a Data has it. Without it labels are indices
    into the catalogue of whatever is measured.
    columns: the names of the features, where a table of a Data has them.
    """

    x: torch.Tensor
    y: torch.Tensor
    catalogue: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.y, torch.Tensor) and self.y.dtype in SMALLER:
            # torch indexes by int64 alone, and takes bytes for a mask
            object.__setattr__(self, "y", self.y.to(torch.int64))

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Split({len(self)} x {tuple(self.x.shape[1:])} {self.x.dtype})"

    def select(self, classes: Sequence[int]) -> "Split":
        """The rows whose label is one of `classes`, in their order, labels unchanged."""
        rows = torch.isin(self.y, torch.tensor(list(classes)).to(self.y))
        return replace(self, x=self.x[rows], y=self.y[rows])

    def labels_in(self, catalogue: Sequence[str]) -> torch.Tensor:
        """The labels as indices into another catalogue, by name; -1 where it has no such class."""
        if self.catalogue is None or self.catalogue == tuple(catalogue):
            return self.y
        places = torch.tensor([*_places(self.catalogue, catalogue), -1])
        return places.to(self.y.device)[self.y]  # a missing label, -1, is the last: it stays so

    def over(self, catalogue: Sequence[str]) -> "Split":
        """The same rows, with labels that are indices into another catalogue, by name."""
        labels = self.labels_in(catalogue)
        strange = (labels < 0) & (self.y >= 0)
        if self.catalogue is not None and bool(strange.any()):
            name = self.catalogue[int(self.y[strange][0])]
            raise DataError(
                f"the split has samples of the class {name!r}, which is not in the model's "
                f"catalogue ({shortened(comma_separated(catalogue))}): leave them out, as "
                "load_data(..., classes=[...]) does, or, if the model has other names for the "
                "same classes in the same order, give Split(x, y)"
            )
        return replace(self, y=labels, catalogue=tuple(catalogue))


@dataclass(frozen=True, eq=False, repr=False)
class Data:
    """A data set ready for use; `digest` is the same on any machine, and another for other data.

    `options` are those of load_data that were not the defaults, as plain JSON values. `fill` has
    the value that replaces a missing one, feature by feature, where load_data was given `missing`.
    With an `encoder` the splits hold the features that it gave for the raw inputs.
    `public` are unlabelled inputs that every module may see, raw like the splits. `scale_on` is
    what the scaling was asked to be fitted on, "train" or "public"; None where nothing was said,
    which is the training split. `columns` are the names of the features, where a table has them.
    """

    name: str
    catalogue: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    scaling: Scaling
    digest: str
    options: Mapping[str, Any] = field(default_factory=dict)
    fill: tuple[float, ...] | None = None
    encoder: Encoder | None = None
    public: torch.Tensor | None = None  # M, *shape
    scale_on: str | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        own = {"catalogue": self.catalogue, "columns": self.columns}
        for part in ("train", "validation", "test"):
            object.__setattr__(self, part, replace(getattr(self, part), **own))

    @classmethod
    def build(
        cls,
        name: str,
        catalogue: Sequence[str],
        train: Split,
        validation: Split,
        test: Split,
        scale: str,
        encoder: Encoder | None = None,
        raw: Sequence[Split] = (),
        public: torch.Tensor | None = None,
        scale_on: str | None = None,
        raw_public: torch.Tensor | None = None,
    ) -> "Data":
        """Fit the scaling, on `train` alone unless it is to be on `public`; compute the digest.

        Of features it follows from the `raw` rows, `raw_public` among them, and the identity of
        their `encoder`: the last bits of the features differ between machines.
        """
        if scale_on == "public" and public is None:
            raise DataError(f"{name}: scale_on is 'public', and there is no public set: give one")
        fitted_on = public if scale_on == "public" and public is not None else train.x
        scaling = Scaling.fit(scale, fitted_on)
        parts = (train, validation, test)
        outside = public if raw_public is None else raw_public
        digest = _digest(catalogue, raw or parts, scaling.kind, outside, scale_on)
        if encoder is not None:
            digest = digest_of([digest, encoder.identity])
        more = {"encoder": encoder, "public": public, "scale_on": scale_on}
        return cls(name, tuple(catalogue), *parts, scaling, digest, **more)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train.x.shape[1:])

    @property
    def classes(self) -> int:
        return len(self.catalogue)

    def __repr__(self) -> str:
        return (
            f"Data({self.name!r}, {self.classes} classes, inputs {self.shape}, train "
            f"{len(self.train)}, validation {len(self.validation)}, test {len(self.test)}, "
            f"scaling {self.scaling.kind!r})"
        )

    def labels_in(self, catalogue: Sequence[str]) -> torch.Tensor:
        """The place of every class in another catalogue, by name; -1 where it has none."""
        return torch.tensor(_places(self.catalogue, catalogue))


def _places(names: Sequence[str], catalogue: Sequence[str]) -> list[int]:
    place = {name: i for i, name in enumerate(catalogue)}
    return [place.get(name, -1) for name in names]


def check_same_encoder(data: Data, encoder: Encoder | None) -> None:
    """Features must be those that a module reads; raw inputs will go through its encoder."""
    if data.encoder is not None and not data.encoder.same_as(encoder):
        wanted = "raw inputs" if encoder is None else f"features of {encoder}"
        raise DataError(
            f"{data.name!r} holds features of {data.encoder}, the modules read {wanted}: load it "
            "with the encoder of the modules"
        )


def evenly_spaced(count: int, most: int) -> torch.Tensor:
    """Numbers of at most `most` of `count` rows, as evenly spaced as whole numbers can be."""
    rows = min(count, most)
    return torch.arange(rows) * count // max(1, rows)


def subsample(split: Split, most: int) -> Split:
    """At most so many rows of a split, evenly spaced."""
    rows = evenly_spaced(len(split), most)
    return replace(split, x=split.x[rows], y=split.y[rows])


def _digest(
    catalogue: Sequence[str],
    splits: Sequence[Split],
    kind: str,
    public: torch.Tensor | None = None,
    scale_on: str | None = None,
) -> str:
    """SHA-256 of the contents; of public inputs only where there are some.

    The fitted numbers of the scaling follow from the arrays and its kind, and their last bits may
    differ between machines, so they stay out.
    """
    sha = hashlib.sha256(json.dumps([list(catalogue), kind]).encode())
    tensors = [tensor for split in splits for tensor in (split.x, split.y)]
    if public is not None:
        sha.update(json.dumps(["public", scale_on == "public"]).encode())
        tensors.append(public)
    for tensor in tensors:
        array = tensor.detach().cpu().contiguous().numpy()
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(json.dumps([array.dtype.str, list(array.shape)]).encode())
        sha.update(array.data)
    return sha.hexdigest()
