"""Artifacts: open any path that intarsia wrote, know what it is, and find the data it wants."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intarsia.composition import Composition
from intarsia.composition.module_paths import header_of, load_path, modules_at
from intarsia.data import (
    DATASETS,
    Data,
    Split,
    check_options,
    check_same_encoder,
    load_data,
    options_for,
)
from intarsia.data.load import ENDINGS
from intarsia.data.sources.image_folders import holds_images
from intarsia.errors import DataError, FileError, comma_separated, nearest
from intarsia.files import is_no_file
from intarsia.limits import account, current
from intarsia.models import Model
from intarsia.modules import LISTING, Bank, Module, file_name
from intarsia.modules.bases.base_weights import BaseSource
from intarsia.modules.classifier import network_inputs
from intarsia.modules.traits import check_columns
from intarsia.parsing import parse_json, read_settings

Artifact = Module | Composition | Bank
SPLITS = ("train", "validation", "test")
ALL_SPLITS = "all"
DEMO_BANK = "modules"  # the folder of the demo's modules; its other banks are for comparison


class Kind(Enum):
    """What a path can hold, in the words of an error."""

    MODULE = "a module"
    COMPOSITION = "a composition"
    BANK = "a bank of modules"
    DEMO = "the folder of a demo"
    PRETRAINED = "a folder that save_pretrained wrote"
    FOREIGN = (
        "a model of another program: Module.of makes a module of its network, and `intarsia "
        "compose` joins such folders by a recipe of mergekit's"
    )
    ADAPTER = (
        "an adapter in peft's files: in Python, Module.from_adapter makes a module of it and of "
        "the network that it was made for"
    )
    BASE = "the base that modules are changes of: `intarsia train --base` starts from it"
    RUN = "a training run that is not finished: run the same command again to finish it"
    STORE = "the store of a study: `intarsia report` and `intarsia study` show it"
    ARCHIVE = "JSON, as the archive of a study: `intarsia report` and `intarsia study` show those"
    RECIPE = "a training recipe: `intarsia train` makes modules of it"
    MERGE_RECIPE = "a merge recipe: `intarsia compose` makes a composition of it"
    DATA = "data: `intarsia train OUT --data` makes modules of it"
    OTHER = "not a file or folder of intarsia"


# Files that say what a folder is, the first that is there; a finished run is a bank.
MARKERS = {
    LISTING: Kind.BANK,
    "store.json": Kind.STORE,
    "adapter_config.json": Kind.ADAPTER,
    "config.json": Kind.PRETRAINED,
    f"{DEMO_BANK}/{LISTING}": Kind.DEMO,
    ".progress": Kind.RUN,
}
FORMATS = {
    "intarsia-module": Kind.MODULE,
    "intarsia-composition": Kind.COMPOSITION,
    "intarsia-base": Kind.BASE,
}


def kind_of(path: Path) -> Kind:
    """What a file or folder is, by its name and header; it is checked when it is opened.

    What does not exist, or was written by others, is OTHER.
    """
    if os.path.isdir(path):
        there = (name for name in MARKERS if os.path.exists(path / name))
        unmarked = Kind.DATA if holds_images(path) else Kind.OTHER
        kind = next((MARKERS[name] for name in there), unmarked)
        return Kind.FOREIGN if kind is Kind.PRETRAINED and _is_foreign(path) else kind
    if is_no_file(path):
        return Kind.OTHER  # never opened: a pipe would keep us waiting
    if os.path.isfile(path) and path.suffix.lower() in ENDINGS:
        return Kind.DATA
    if (stated := str(header_of(path).get("format"))) in FORMATS:
        return FORMATS[stated]
    if is_recipe(path):
        settings = read_settings(path) if os.path.isfile(path) else {}
        merges = not {"models", "merge_method"}.isdisjoint(settings)
        return Kind.MERGE_RECIPE if merges else Kind.RECIPE
    return Kind.ARCHIVE if path.suffix == ".json" else Kind.OTHER


def _is_foreign(folder: Path) -> bool:
    """Whether a config.json names the classes of transformers, as ours does not."""
    try:
        with (folder / "config.json").open("rb") as file:
            config = parse_json(file.read(current().header))
    except (OSError, ValueError):
        return False  # which the loader says
    return isinstance(config, dict) and {"architectures", "model_type"} & config.keys() != set()


def is_recipe(path: Path) -> bool:
    """Whether a path is that of a YAML file."""
    return path.suffix in (".yaml", ".yml")


def is_study(path: Path) -> bool:
    """Whether a path holds cells of studies: a store, or an archive."""
    return kind_of(path) in (Kind.STORE, Kind.ARCHIVE)


def weights_path(path: Path) -> Path:
    """Where the modules of a path lie: of a demo its bank, of a folder for the hub its one file."""
    kind = kind_of(path)
    if kind is Kind.DEMO:
        return path / DEMO_BANK
    if kind is Kind.PRETRAINED:
        from intarsia.hub import weights_file

        return weights_file(path)
    holds_modules = kind in (Kind.MODULE, Kind.COMPOSITION, Kind.BANK, Kind.OTHER)
    if os.path.exists(path) and not holds_modules:
        raise FileError(f"{path}: expected modules, but it is {kind.value}")
    _check_path(path)
    return path  # of another kind the loader says what is wrong


def _check_path(path: Path) -> None:
    """A file or a folder, or nothing: a pipe or a device is not opened."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        # Names of classes that not every file system takes are changed; all else the loader says.
        name = path.stem if path.suffix == ".safetensors" else path.name
        changed = path.with_name(file_name(name)) if name else path
        if os.path.exists(changed):
            raise FileError(
                f"{path}: there is no such file: module {name!r} is in {changed}"
            ) from None
        return
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be opened: {reason}: check the path") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise FileError(f"{path}: is a pipe or a device: give a file or a folder")


def graph_network(paths: Sequence[Path]) -> Model | None:
    """The network of modules of a graph's nodes, if they say where their graph lies.

    For paths that a person gave, not for files from anywhere: it reads what they name.
    """
    ours = (Kind.MODULE, Kind.COMPOSITION, Kind.BANK, Kind.PRETRAINED)
    for path in paths:
        place = kind_of(path) in ours and _provenance_at(weights_path(path)).get("graph")
        if isinstance(place, Mapping):
            from intarsia.graphs import graph_model

            return graph_model(place)
    return None


def _provenance_at(path: Path) -> Mapping[str, Any]:
    """What the header of the first module of a file or folder says of its making."""
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        header = header_of(file)
        parts = header.get("parts")
        first = parts[0] if isinstance(parts, list) and parts else header
        if found := _mapping(_mapping(first).get("provenance")):
            return found
    return {}


def open_artifact(
    path: Path, model: Model | None = None, base: BaseSource | None = None
) -> Artifact:
    """The module, composition or bank that a path holds; of a saved classifier its composition.

    `model` and `base` as in Module.load. No warning of its health: the caller shows that.
    """
    return load_path(weights_path(path), model, base)


def open_module(path: Path, model: Model | None = None) -> Module:
    """The module of a file."""
    artifact = open_artifact(path, model)
    if not isinstance(artifact, Module):
        raise FileError(
            f"{path} holds a {type(artifact).__name__.lower()}: give the file of a module"
        )
    return artifact


def open_network(path: Path, model: Model | None = None) -> Module | Composition:
    """A module or a composition; a bank has too many networks."""
    artifact = open_artifact(path, model)
    if isinstance(artifact, Bank):
        raise FileError(f"{path} holds a bank: give one of its files, or compose it first")
    return artifact


@account()
def open_modules(
    paths: Sequence[Path], seed: int | None = None, model: Model | None = None
) -> list[Module]:
    """All modules that the paths hold, of one seed where a bank has several."""
    return [
        module
        for path in paths
        for module in modules_at(weights_path(path), seed, one_seed=True, model=model)
    ]


def modules_of(artifact: Artifact) -> tuple[Module, ...]:
    """The module itself, a composition's parts, or a bank's modules, of which there must be one."""
    if isinstance(artifact, Module):
        return (artifact,)
    if isinstance(artifact, Composition):
        return artifact.parts
    if not len(artifact):
        raise FileError("the bank has no modules, all of them diverged")
    return tuple(artifact)


def classifiers_of(artifact: Artifact) -> Mapping[str, Module | Composition]:
    """What can be measured, by name: a composition as one, a bank's modules one by one."""
    if isinstance(artifact, Composition):
        return {"composition": artifact}
    return {module.name: module for module in modules_of(artifact)}


def data_for(
    artifact: Artifact, source: str | None, options: Mapping[str, Any]
) -> tuple[Data, bool | None]:
    """The data to measure on, and whether the modules were trained on it, split as it is.

    None where they do not say what that was, as those trained elsewhere. Without a source it is
    what they were trained on. Options that it was loaded with then, or that another file is to be
    read with alike, hold unless others are given.
    """
    first = modules_of(artifact)[0]
    data = _loaded(first, source, options)
    trained_on = _mapping(first.provenance.get("data")).get("digest")
    return data, None if trained_on is None else data.digest == trained_on


def split_for(artifact: Artifact, data: Data, name: str) -> Split:
    """A split, or all three, with labels that are indices into the modules' catalogue."""
    first = modules_of(artifact)[0]
    catalogue = first.catalogue
    check_same_encoder(data, first.encoder)
    unknown = [label for label in data.catalogue if label not in catalogue]
    if unknown:
        shared = comma_separated(label for label in data.catalogue if label in catalogue)
        raise DataError(
            f"{data.name} has the class {unknown[0]!r}, which is not in the modules' catalogue "
            f"({comma_separated(catalogue)}): "
            + (f"keep those that are, --set 'classes=[{shared}]'" if shared else "none of it is")
        )
    x, y = _rows(data, name)
    if first.encoder is not None:  # of raw inputs the features, once for all modules
        x = network_inputs(x, first.architecture.shape, first.encoder)
    return Split(x, data.labels_in(catalogue)[y])


def unknown_for(artifact: Artifact, source: str, options: Mapping[str, Any], name: str) -> Split:
    """A split, or all three, of data with classes of its own, loaded as in `data_for`."""
    data = _loaded(modules_of(artifact)[0], source, options, "--unknown-set")
    return Split(*_rows(data, name), data.catalogue)


def labelled(artifact: Artifact, data: Data) -> Data:
    """The data with labels that are indices into the modules' catalogue, split by split."""
    train, test = (split_for(artifact, data, name) for name in ("train", "test"))
    kept = data.validation
    validation = split_for(artifact, data, "validation") if len(kept) else kept
    catalogue = modules_of(artifact)[0].catalogue
    return replace(data, catalogue=catalogue, train=train, validation=validation, test=test)


def _loaded(
    module: Module, source: str | None, options: Mapping[str, Any], flag: str = "--set"
) -> Data:
    """The data that the source names, by default that of the module's training, as it reads it.

    `flag` gives a shell's options of them.
    """
    check_options(options)
    data = module.own_data(source, options)
    if data is not None:
        return data
    source = _training_data(module) if source is None else source
    encoder = {} if module.encoder is None else {"features": module.encoder}
    learned = {
        key: value
        for key, value in options_for(source, module.provenance).items()
        if key not in options
    }
    try:
        data = load_data(source, **{**learned, **encoder, **options})
    except DataError as error:
        dropped = learned.get("drop", [])
        names = [dropped] if isinstance(dropped, str | int) else dropped
        said = str(error)
        if source == _source_of(module) or not any(repr(name) in said for name in names):
            raise
        raise DataError(
            f"{said}; it is read as the training data was, with drop={dropped!r}: give others "
            f"for it, as in {flag} drop=null"
        ) from None
    check_columns(data, module.columns)
    return data


def _rows(data: Data, name: str) -> tuple[Tensor, Tensor]:
    """Inputs and labels of a split, or of all three."""
    if name not in (*SPLITS, ALL_SPLITS):
        raise DataError(f"unknown split {name!r}: {nearest(name, (*SPLITS, ALL_SPLITS))}")
    names = SPLITS if name == ALL_SPLITS else (name,)
    x, y = (torch.cat([getattr(getattr(data, part), key) for part in names]) for key in "xy")
    if not len(y):
        raise DataError(f"{data.name} has no samples in its {name} split: choose another --split")
    return x, y


def _training_data(module: Module) -> str:
    """The name or path of the data that a module was trained on, where it can still be loaded."""
    source = _source_of(module)
    if not source or not isinstance(source, str):
        raise DataError("the file does not say what it was trained on: name the data with --data")
    if source not in DATASETS and not os.path.exists(source):
        raise DataError(
            f"module {module.name!r} was trained on {source!r}, which is not here: "
            "give it with --data, as a file .npz, .csv or .parquet, or a folder of images"
        )
    return source


def _source_of(module: Module) -> Any:
    """What a module's recipe calls its data, if it says so."""
    return _mapping(module.provenance.get("recipe")).get("data")


def _mapping(value: Any) -> Mapping[str, Any]:
    """What a file says of itself, where it is a mapping: its writer was free to write anything."""
    return value if isinstance(value, Mapping) else {}
