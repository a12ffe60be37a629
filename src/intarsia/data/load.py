"""`load_data`: from a name, a file or arrays to splits with a scaling."""

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from intarsia.data.arrays import Raw, as_raw, check_sizes, from_mapping, read_npz
from intarsia.data.dataset import Data, Split
from intarsia.data.public_set import fit_public, read_public
from intarsia.data.scaling import check_kind, fill, fill_values
from intarsia.data.sources.budget import check_entries
from intarsia.data.sources.datasets import DATASETS
from intarsia.data.sources.image_folders import from_folder
from intarsia.data.sources.lookup import read_named
from intarsia.data.sources.tabular import (
    Column,
    FrameTable,
    ParquetTable,
    TableColumns,
    from_csv,
    is_frame,
    measured_frames,
)
from intarsia.data.splits import (
    check_fraction,
    check_seed,
    equal_rows,
    stratified,
    stratified_groups,
)
from intarsia.data.texts import INPUTS, Tokens, as_tokens, tokenised
from intarsia.encoders import ENCODERS, Encoder, cached_features
from intarsia.encoders.encoder import (
    EncoderLike,
    check_pictures,
    is_custom,
    read_spec,
    reads_texts,
    tokens_of,
)
from intarsia.errors import DataError, RecipeError, nearest
from intarsia.files import plain
from intarsia.specs import Spec

TABLES = (".csv", ".parquet")
ENDINGS = (".npz", *TABLES)
READING = (
    "target",
    "encoding",
    "missing",
    "size",
    "groups",
    "drop",
    "features",
)  # how a path is read
DUPLICATES = ("keep", "together", "drop")


def load_data(
    source: Any,
    y: Any = None,
    *,
    validation: float | None = None,
    test: float = 0.2,
    seed: int = 0,
    scale: str | None = None,
    classes: Sequence[Any] | Literal["all"] | None = None,
    labels: str = "fine",
    target: str | int | None = None,
    encoding: str | None = None,
    missing: str | float | Sequence[float] | None = None,
    size: int | Sequence[int] | None = None,
    groups: str | int | None = None,
    drop: Column | Sequence[Column] | None = None,
    duplicates: str = "keep",
    features: EncoderLike | None = None,
    public: Any = None,
    scale_on: str | None = None,
    download: bool = True,
    progress: bool | None = None,
) -> Data:
    """Load `source`: a name (see DATASETS), a path, x with y, (x, y), a mapping, or a data frame.

    A path is a file that ends in .csv, .parquet or .npz, or a folder of images with a folder for
    each class, or with train and test and these in both.

    `validation` is the fraction of the training part (0.2; yeast 0.1875, which makes 65/15/20),
    `test` that of all rows, used only where the source has no test part. `classes` keeps the named
    classes in that order; yeast keeps its four largest unless it is "all". `labels="coarse"` gives
    cifar100's 20 groups.

    `scale` is unit, signed, standard, capped or none; by default unit for images, capped for
    tables, none for har and for an array or .npz of whole numbers with one row per sample: they
    may be tokens, and stay whole numbers. 8 bits are pixels.

    `target` is the label column of a table, by name or position; of an .npz or a mapping the name
    of the array of labels, or a column of x. `encoding` is that of a .csv; by default UTF-8 or
    UTF-16 by its mark, else latin-1 with a warning. `missing` fills in values that a table lacks:
    mean, median or most_frequent of the training part, or the values themselves, one per feature;
    without it they are refused. `size` is what images of a folder are brought to, pixels as one
    number or as (height, width).

    `groups` names the column of a table, or the array beside x and y, that says which rows belong
    together, such as those of one person (har has "subject"): a group stays on one side of every
    cut, and the column is not a feature. `drop` names columns of a table that are left out, such as
    the numbers of its rows. `duplicates` are rows with the same inputs: "keep" does
    nothing about them, "together" keeps them on one side as a group, "drop" leaves one of those
    that have the same label too, and none in training that is in a given test part.

    `features` is a pretrained encoder that every input goes through first: a name, such as
    "efficientnet_lite0" or "timm/resnet50.a1_in1k", a torch.nn.Module, or a function. What it gives
    is computed once and kept in the cache, and modules that are trained on it take raw inputs
    again. The features are scaled as tables are. With an encoder that reads texts, such as
    "minilm", inputs are texts: a list of them, or all columns of a table but the label's.
    `public` are inputs without labels, of the data's shape, that every module may see: an array,
    the name of one beside the data in an .npz or a mapping, a data set by name, an .npz or a folder
    of images. They are negatives where a recipe asks for them. `scale_on` is what the scaling is
    fitted on, "train" or "public"; left open, the training part, and a module that is not to see
    all classes is refused until it is said (see `visibility` of a recipe).
    """
    if isinstance(source, Data):
        return source
    classes = _names(classes)
    options = _changed(
        validation=validation, test=test, seed=seed, scale=scale, classes=classes, labels=labels,
        target=target, encoding=encoding, missing=missing, size=size,
        groups=groups, drop=drop, duplicates=duplicates, scale_on=scale_on,
        public=str(public) if isinstance(public, str | os.PathLike) else None,
    )  # fmt: skip
    tokens = None
    if features is not None:
        _refuse("features of an encoder", missing=missing)
        tokens = partial(tokens_of, features) if reads_texts(features) else None
    _check_scale_on(scale_on, public)
    _check_duplicates(duplicates, groups)
    test = check_fraction("test", test)
    seed = check_seed(seed)
    named = _named(source)
    _check_labels(labels, named)
    known = DATASETS[named].traits if named else DATASETS.traits  # what is left at its default
    if named:
        _refuse(
            source, y=y, target=target, encoding=encoding, missing=missing, size=size, drop=drop
        )
        _check_groups(groups, named)
        name, raw = named, read_named(named, labels, download, progress, groups, tokens)
    else:
        reading = {
            "target": target, "encoding": encoding, "size": size, "groups": groups, "drop": drop
        }  # fmt: skip
        name, raw = _own(source, y, reading, missing is not None, tokens)
    fraction = check_fraction(
        "validation", known["validation"] if validation is None else validation
    )
    kind = check_kind((known["scale"] or _default_scale(raw)) if scale is None else scale)
    wanted = known["keep"] if classes is None else classes
    if wanted is not None and not isinstance(wanted, str):
        raw = raw.keep(wanted, name)
    if raw.x.dtype == np.int64 and kind != "none" and features is None:
        raw = raw.as_floats()
    if duplicates != "keep":
        raw = _without_duplicates(raw) if duplicates == "drop" else _together(raw, name)
    splits = _cut(name, raw, fraction, test, seed)
    outside = None
    if public is not None:
        outside = read_public(public, source, download=download, progress=progress, tokens=tokens)
    if features is None:
        fitting = None if outside is None else fit_public(outside, splits[0].x)
        data = _filled(name, raw.catalogue, splits, kind, missing, fitting, scale_on)
        return replace(data, options=options, columns=raw.columns)
    encoder = _encoder(features, raw, name)
    encoded = _cut(name, _encoded(raw, encoder, name, progress), fraction, test, seed)
    rows = None if outside is None else _public_features(outside, encoder, progress)
    data = Data.build(
        name, raw.catalogue, *encoded, "capped" if scale is None else kind, encoder, splits,
        public=rows, scale_on=scale_on,
        raw_public=None if outside is None else torch.tensor(outside),
    )  # fmt: skip
    return replace(data, options={**options, "features": encoder.text})


def _public_features(outside: np.ndarray, encoder: Encoder, progress: bool | None) -> torch.Tensor:
    """Features of a public set; rows that are features already stay as they are."""
    if outside.shape[1:] == (encoder.features,):
        return torch.tensor(outside, dtype=torch.float32)
    if not encoder.reads(outside.shape[1:]):
        raise DataError(
            f"the public set has inputs of shape {outside.shape[1:]}: the encoder {encoder} takes "
            f"{encoder.expected}"
        )
    return torch.from_numpy(cached_features(encoder, outside, progress))


def check_options(options: Mapping[str, Any]) -> None:
    """Only what load_data takes by name, or an error with the nearest of these."""
    known = known_options()
    for key in options:
        if key not in known:
            raise RecipeError(f"data has no option {key!r}: {nearest(key, known)}")


def known_options() -> list[str]:
    """What load_data takes by name."""
    return [key for key in inspect.signature(load_data).parameters if key not in ("source", "y")]


def _encoder(features: EncoderLike, raw: Raw, name: str) -> Encoder:
    """The encoder of these inputs; of pixels that are not 8 bits it must be told what is white."""
    shape = raw.x.shape[1:]
    if isinstance(features, str | Mapping | Spec) and raw.x.dtype != np.uint8:
        spec = read_spec(features)
        check_pictures(spec, shape)
        if "white" in ENCODERS.parameters(spec.name) and "white" not in spec.arguments:
            said = Spec(spec.name, {**spec.arguments, "white": 1})
            raise DataError(
                f"{name} has pictures of type {raw.x.dtype}: give 8 bits for each pixel, or say "
                f'which value is white, as in features="{said}"'
            )
    return Encoder.of(features, shape)


def _encoded(raw: Raw, encoder: Encoder, name: str, progress: bool | None) -> Raw:
    """Features in place of the inputs, counted before they are computed."""
    parts = [raw.x] if raw.x_test is None else [raw.x, raw.x_test]
    rows, size = sum(map(len, parts)), sum(part.nbytes for part in parts)
    check_entries(rows * encoder.features, size, f"the features of {name}, whose inputs")
    x, *tests = (cached_features(encoder, part, progress) for part in parts)
    return replace(raw, x=x, x_test=tests[0] if tests else None)


def _names(classes: Any) -> Any:
    """`classes` if it is None, "all" or a list, which an array becomes."""
    names = classes.tolist() if hasattr(classes, "tolist") else classes
    if names is None or names == "all" or isinstance(names, list | tuple):
        return names
    raise DataError(f"classes must be 'all' or a list of names, got {classes!r}")


def _changed(**options: Any) -> dict[str, Any]:
    known = inspect.signature(load_data).parameters
    values = {key: plain(value, key) for key, value in options.items()}
    return {key: value for key, value in values.items() if value != known[key].default}


def _check_labels(labels: Any, named: str | None) -> None:
    if not isinstance(labels, str):
        raise DataError(
            f"labels is a {type(labels).__name__}: expected 'fine' or 'coarse', of a data set that "
            "has both; labels of your own follow the inputs, as in load_data(x, y)"
        )
    coarse = [name for name, known in DATASETS.items() if known.coarse_classes]
    if labels not in ("fine", "coarse") or (labels == "coarse" and named not in coarse):
        names = " and ".join(coarse)
        raise DataError(f"labels={labels!r}: only {names} has coarse labels; all have 'fine'")


def _check_groups(groups: Any, named: str) -> None:
    known = DATASETS[named].groups
    if groups is not None and groups not in known:
        raise DataError(
            f"{named} has no groups {groups!r}: "
            + (nearest(str(groups), known) if known else "it has none by which it can be split")
        )


def _check_scale_on(scale_on: Any, public: Any) -> None:
    if scale_on not in (None, "train", "public"):
        raise DataError(f"scale_on is {scale_on!r}: expected 'train' or 'public'")
    if scale_on == "public" and public is None:
        raise DataError("scale_on is 'public', and there is no public set: give one with public=")


def _check_duplicates(duplicates: Any, groups: Any) -> None:
    if duplicates not in DUPLICATES:
        raise DataError(f"duplicates is {duplicates!r}: {nearest(str(duplicates), DUPLICATES)}")
    if duplicates == "together" and groups is not None:
        raise DataError(
            "groups= and duplicates='together' both say which rows belong together: give one of "
            "them, or drop the duplicates"
        )


def _together(raw: Raw, name: str) -> Raw:
    """Rows with the same inputs as a group."""
    if raw.x_test is not None:
        codes = equal_rows(np.concatenate([raw.x, raw.x_test]))
        shared = int(np.isin(codes[: len(raw.x)], codes[len(raw.x) :]).sum())
        if shared:
            raise DataError(
                f"{name}: {shared} training rows have the inputs of rows of its test part, which "
                "stays as it is: they cannot be kept together; drop them with duplicates='drop'"
            )
    return replace(raw, groups=equal_rows(raw.x))


def _without_duplicates(raw: Raw) -> Raw:
    """The first of rows with the same inputs and label; none that a given test part has too."""
    x, y = raw.x, raw.y
    if raw.x_test is not None and raw.y_test is not None:
        x, y = np.concatenate([raw.x_test, x]), np.concatenate([raw.y_test, y])
    _, first = np.unique(equal_rows(x, y), return_index=True)
    rows = np.sort(first) - (len(x) - len(raw.x))
    return raw.select(rows[rows >= 0])


def _default_scale(raw: Raw) -> str:
    """What the docstring of load_data says of images, tables and whole numbers."""
    if raw.x.dtype == np.int64:
        return "none"
    return "unit" if raw.x.ndim > 2 else "capped"


Splits = tuple[Split, Split, Split]


def _cut(name: str, raw: Raw, validation: float, test: float, seed: int) -> Splits:
    """Train, validation and test."""
    own_test = raw.x_test is not None and raw.y_test is not None
    check_sizes(raw, 1 + (validation > 0) + (not own_test and test > 0), name)
    if own_test:
        rest, tested = np.arange(len(raw.y)), _split(raw.x_test, raw.y_test)
    else:
        rest, cut = _parts(raw, np.arange(len(raw.y)), test, seed, 0, keep=1 + (validation > 0))
        tested = _split(raw.x[cut], raw.y[cut])
    kept, held = _parts(raw, rest, validation, seed, 1)
    train, validated = (_split(raw.x[rest[rows]], raw.y[rest[rows]]) for rows in (kept, held))
    return train, validated, tested


def _filled(
    name: str,
    catalogue: tuple[str, ...],
    splits: Splits,
    scale: str,
    missing: Any,
    public: torch.Tensor | None,
    scale_on: str | None,
) -> Data:
    """Data with the values that are missing filled in, where that is asked for."""
    outside: Any = {"public": public, "scale_on": scale_on}
    if missing is None:
        return Data.build(name, catalogue, *splits, scale, **outside)
    values = fill_values(missing, splits[0].x.numpy(), name)
    train, validated, tested = (
        _split(fill(part.x.numpy(), values), part.y.numpy()) for part in splits
    )
    data = Data.build(name, catalogue, train, validated, tested, scale, **outside)
    return replace(data, fill=tuple(values.tolist()))


def _parts(
    raw: Raw, rows: np.ndarray, fraction: float, seed: int, stream: int, keep: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """The places among `rows` that are left and that are cut out, groups kept whole."""
    if raw.groups is None:
        return stratified(raw.y[rows], fraction, seed, stream=stream, keep=keep)
    return stratified_groups(
        raw.y[rows], raw.groups[rows], raw.catalogue, fraction, seed, stream=stream, keep=keep
    )


def _split(x: np.ndarray | None, y: np.ndarray | None) -> Split:
    # A copy: the user's array must not change under the data, nor the data under the user's array.
    return Split(torch.tensor(x), torch.tensor(y, dtype=torch.int64))


def is_path(source: str) -> bool:
    """Whether a word means a file or a folder, and not a data set that has a name."""
    if not isinstance(source, str):
        return False  # as a recipe may have it; loading says what is wrong
    ends = source.lower().endswith(ENDINGS)
    return ends or os.sep in source or (source not in DATASETS and os.path.isdir(source))


def options_for(source: str, learned: Mapping[str, Any]) -> dict[str, Any]:
    """What `source` is to be loaded with, for modules with this provenance.

    The data they learned from: all options it had then, since another split would put samples that
    they have seen into the test part. Another path of the same kind: how it is read, and the
    values that replace missing ones.
    """
    recipe, data = (_mapping(learned.get(key)) for key in ("recipe", "data"))
    before, options = str(recipe.get("data") or ""), dict(_mapping(recipe.get("data_options")))
    if is_custom(options.get("features")):
        options.pop("features")  # which only the modules themselves have, if they were given it
    if source == before:
        return options
    if not (before and is_path(before) and is_path(source) and _kind(before) == _kind(source)):
        return {}
    reading = {key: options[key] for key in READING if key in options}
    if not source.lower().endswith(".csv"):
        reading.pop("encoding", None)
    fill = data.get("fill")
    return {**reading, "missing": fill} if fill else reading


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _kind(path: str) -> str:
    """The kind of a path by its ending: a table, arrays, or a folder."""
    ending = Path(path).suffix.lower()
    return "table" if ending in TABLES else ending if ending in ENDINGS else "folder"


def _named(source: Any) -> str | None:
    """The name of a known data set; None for everything that is not a name."""
    if not isinstance(source, str) or is_path(source):
        return None
    if source not in DATASETS:
        raise DataError(
            f"unknown data set {source!r}: {nearest(source, DATASETS)} "
            f"(a file of your own must end in {', '.join(ENDINGS)}; there is no such folder)"
        )
    return source


def _own(
    source: Any, y: Any, reading: dict[str, Any], missing: bool, tokens: Tokens | None
) -> tuple[str, Raw]:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        _refuse(path, y=y)
        name = path.resolve().name if os.path.isdir(path) else path.stem
        return name, _from_path(path, reading, missing, tokens)
    _refuse("arrays", encoding=reading["encoding"], size=reading["size"])
    if is_frame(source) and y is None:
        return "table", FrameTable(source).read(_columns(reading), missing=missing, tokens=tokens)
    _refuse("arrays", drop=reading["drop"])
    if isinstance(source, Mapping):
        _refuse("a mapping", y=y)
        return "arrays", _of_mapping(source, reading, missing, tokens)
    _refuse("arrays", target=reading["target"])
    if reading["groups"] is not None:
        raise DataError("groups of arrays: give a mapping with x, y and an array of this name")
    if isinstance(source, tuple) and y is None:
        if len(source) != 2:
            raise DataError(f"a tuple of arrays must be (x, y), got {len(source)} items")
        source, y = source
    if y is None:
        raise DataError("labels are missing: give load_data(x, y), (x, y), a mapping or a path")
    if is_frame(source) and tokens is None:
        table = FrameTable(source)
        raw = as_raw("arrays", table.measurements(), y, missing=missing)
        return "arrays", replace(raw, columns=tuple(table.names))
    return "arrays", as_raw("arrays", as_tokens(source, tokens, "arrays"), y, missing=missing)


def _of_mapping(
    source: Mapping[str, Any], reading: dict[str, Any], missing: bool, tokens: Tokens | None
) -> Raw:
    named = {key: reading[key] for key in ("target", "groups")}
    texts = tokenised(source, tokens, "the mapping")
    columns: tuple[str, ...] = ()
    if tokens is None and not isinstance(named["target"], int):  # else labels may be a column
        rest = set(source) - {"classes", *(v for v in named.values() if isinstance(v, str))}
        inputs = INPUTS if named["target"] is None or "x" in source else rest
        frames = {key: source[key] for key in source if key in inputs and is_frame(source[key])}
        rows, columns = measured_frames(frames)
        texts |= rows
    return replace(from_mapping(texts, "the mapping", missing=missing, **named), columns=columns)


def _from_path(path: Path, reading: dict[str, Any], missing: bool, tokens: Tokens | None) -> Raw:
    target, encoding, size, groups, drop = (
        reading[key] for key in ("target", "encoding", "size", "groups", "drop")
    )
    ending = path.suffix.lower()
    if ending == ".csv":
        _refuse(path, size=size)
        return from_csv(path, _columns(reading), encoding, missing=missing, tokens=tokens)
    _refuse(path, encoding=encoding)
    if os.path.isdir(path):
        _refuse(path, target=target, groups=groups, drop=drop)
        return from_folder(path, size)
    _refuse(path, size=size)
    if ending == ".parquet":
        return ParquetTable(path).read(_columns(reading), missing=missing, tokens=tokens)
    _refuse(path, drop=drop)
    if ending != ".npz":
        raise DataError(
            f"{path}: expected a file that ends in .npz or .csv or .parquet, or a folder of images"
        )
    arrays = tokenised(read_npz(path), tokens, str(path))
    return from_mapping(arrays, str(path), target, missing=missing, groups=groups)


def _columns(reading: Mapping[str, Any]) -> TableColumns:
    return TableColumns(reading["target"], reading["groups"], reading["drop"])


def _refuse(source: Any, **given: Any) -> None:
    for key, value in given.items():
        if value is not None:
            raise DataError(f"{key}= has no meaning for {source}; leave it out")
