"""What a report is about: modules, their composition if there is one, and data to measure on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from intarsia.artifacts import (
    Artifact,
    Kind,
    data_for,
    kind_of,
    labelled,
    modules_of,
    open_artifact,
    weights_path,
)
from intarsia.composition import Composition
from intarsia.data import DATASETS, Data, Split, is_path, subsample
from intarsia.errors import DataError, FileError, IntarsiaError, RecipeError
from intarsia.models import Model
from intarsia.modules import LISTING, Bank, Health, Module, file_name
from intarsia.modules.traits import CATALOGUE, SHAPE, check_columns, check_traits

Source = str | Path | Artifact | Sequence[str | Path] | Iterable[Module]

TEST_ROWS, LARGE, LARGE_ROWS = 10_000, 2_000_000, 1_000  # rows; parameters; rows of such a network


@dataclass(frozen=True, eq=False)
class ReportInput:
    """Modules in their order; `merged` is a composition of them, where one was given."""

    modules: tuple[Module, ...]
    merged: Composition | None = None
    bank: Bank | None = None
    paths: tuple[Path, ...] = ()  # where it was read from
    folder: Path | None = None  # where the bank's files lie
    files: Mapping[str, Path] = field(default_factory=dict)  # of single modules, by name
    compared: Mapping[str, Module | Composition] = field(default_factory=dict)
    data: Data | None = None  # labels are places in the modules' catalogue
    missing: str = ""  # why there is no data
    known: bool = True  # whether the modules were trained on this data, split as it is
    named: str | None = None  # the data, where it was asked for by name or path
    options: Mapping[str, Any] = field(default_factory=dict)  # of load_data, where given
    rows: int | None = None  # test samples at most
    probe: bool = False  # whether a fresh head is trained

    @property
    def catalogue(self) -> tuple[str, ...]:
        return self.modules[0].catalogue

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What the first module was trained by; empty where it does not say."""
        return self.modules[0].provenance.get("recipe") or {}

    @property
    def seeds(self) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(module.provenance.get("seed") for module in self.modules))

    @cached_property
    def health(self) -> Health:
        """What is wrong with the modules, and with their composition where there is one."""
        if self.merged is not None:
            return self.merged.health
        if self.bank is not None:
            return self.bank.health
        return Health.of(module.health for module in self.modules)

    @cached_property
    def together(self) -> tuple[Module, ...]:
        """The modules that are joined: the composition's, or all; one seed's if classes repeat."""
        if self.merged is not None:
            return self.merged.parts
        if len({module.rewarded for module in self.modules}) == len(self.modules):
            return self.modules
        first = self.seeds[0]
        return tuple(m for m in self.modules if m.provenance.get("seed") == first)

    @cached_property
    def others(self) -> tuple[Module, ...]:
        """The modules that are not joined."""
        return tuple(m for m in self.modules if all(m is not one for one in self.together))

    @cached_property
    def families(self) -> tuple[tuple[Module, ...], ...]:
        """The modules that are joined, then those of other seeds for the same classes."""
        of_seeds = [
            tuple(m for m in self.others if m.provenance.get("seed") == seed)
            for seed in self.seeds[1:]
        ]
        classes = sorted(module.rewarded for module in self.together)
        same = [own for own in of_seeds if sorted(m.rewarded for m in own) == classes]
        return (self.together, *same)

    @cached_property
    def test(self) -> Split:
        """The test samples to measure on: all of them, unless there are very many."""
        assert self.data is not None
        most = self.rows or (LARGE_ROWS if self.large else TEST_ROWS)
        return subsample(self.data.test, most)

    @property
    def large(self) -> bool:
        """Whether the network is so slow that fewer samples have to do."""
        return self.modules[0].parameters > LARGE

    @property
    def data_name(self) -> str:
        trained_on = self.modules[0].provenance.get("data") or {}
        return self.data.name if self.data else str(trained_on.get("name") or "unnamed data")

    @property
    def source(self) -> str | None:
        """What a command calls the data: a name or a file; None for data that has neither."""
        name = self.named or str(self.recipe.get("data") or "")
        if self.data is not None and not self.known and self.named is None:
            name = self.data.name
        return name if name in DATASETS or is_path(name) else None


def subject_of(
    artifact: Source,
    data: str | Data | None = None,
    compared: Mapping[str, Module | Composition] | None = None,
    rows: int | None = None,
    options: Mapping[str, Any] | None = None,
    model: Model | None = None,
    probe: bool = False,
) -> ReportInput:
    """Read what the paths hold, or take the objects as they are, and find the data.

    Where no data is named it is what the modules were trained on; where that is not to be had the
    subject says why, and has none.
    """
    result = _of(artifact, model)
    if rows is not None and rows < 1:
        raise RecipeError(f"rows is {rows}: expected a number of test samples, at least 1")
    result = replace(result, rows=rows, compared={**result.compared, **(compared or {})})
    result = replace(result, options=dict(options or {}), probe=probe)
    first = result.modules[0]
    try:
        named = None if isinstance(data, Data) else data
        if isinstance(data, Data):
            check_columns(data, first.columns)
            known = data.digest == (first.provenance.get("data") or {}).get("digest")
        else:
            data, same = data_for(first, data, result.options)
            known = bool(same)
    except IntarsiaError as error:
        if data is not None or result.options:
            raise
        return replace(result, missing=str(error))
    return replace(result, data=labelled(first, data), known=known, named=named)


def _of(artifact: Source, model: Model | None = None) -> ReportInput:
    if isinstance(artifact, str | Path):
        return _at((Path(artifact),), model)
    if isinstance(artifact, Bank):
        if not len(artifact):
            raise FileError("the bank has no modules, all of them diverged: there is no report")
        return ReportInput(tuple(artifact), bank=artifact)
    if isinstance(artifact, Composition):
        return ReportInput(artifact.parts, merged=artifact)
    if isinstance(artifact, Module):
        return ReportInput((artifact,))
    things = list(artifact) if isinstance(artifact, Iterable) else []
    if things and all(isinstance(one, str | Path) for one in things):
        return _at(tuple(map(Path, things)), model)  # type: ignore[arg-type]
    if not things or not all(isinstance(one, Module) for one in things):
        raise DataError(
            "a report is made of a path, a bank, a composition, or modules: "
            f"got {type(artifact).__name__}; of a ModularClassifier give its composition_"
        )
    return _listed(tuple(things))  # type: ignore[arg-type]


def _at(paths: tuple[Path, ...], model: Model | None) -> ReportInput:
    if len(paths) > 1:
        things = [(path, open_artifact(path, model)) for path in paths]
        parts = [module for _, artifact in things for module in modules_of(artifact)]
        files = {one.name: weights_path(at) for at, one in things if isinstance(one, Module)}
        return replace(_listed(tuple(parts)), paths=paths, files=files)
    path = paths[0]
    if not path.exists():
        raise FileError(f"{path}: there is no such file or folder")
    if kind_of(path) is Kind.DEMO:
        return _demo(path)
    artifact = open_artifact(path, model)
    if isinstance(artifact, Bank):
        return _in_folder(artifact, path)
    files = {artifact.name: weights_path(path)} if isinstance(artifact, Module) else {}
    return replace(_of(artifact), paths=paths, files=files)


def _in_folder(bank: Bank, folder: Path) -> ReportInput:
    names: list[str] = []
    for module in bank:  # as `save` names them
        names.append(file_name(module.name, taken=names))
    files = {m.name: folder / name for m, name in zip(bank, names, strict=True)}
    return replace(_of(bank), paths=(folder,), folder=folder, files=files)


def _demo(path: Path) -> ReportInput:
    """The folder that `intarsia demo` writes: modules, and other ways to the same classes."""
    compared: dict[str, Module | Composition] = {}
    if (path / "territory" / LISTING).exists():
        owners = Composition(Bank.load(path / "territory", quiet=True), "sum")
        compared["modules with territories, weights added"] = owners
    if (path / "joint" / LISTING).exists():
        compared["one network trained on all classes"] = Bank.load(path / "joint", quiet=True)[0]
    result = _in_folder(Bank.load(path / "modules", quiet=True), path / "modules")
    return replace(result, paths=(path,), compared=compared)


def _listed(modules: tuple[Module, ...]) -> ReportInput:
    """Modules of several files: of one catalogue, and no name that would hide another."""
    for module in modules[1:]:
        check_traits(modules[0], module, (CATALOGUE, SHAPE))
    names = [module.name for module in modules]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise DataError(f"two modules are called {twice!r}: give one of them, or rename it")
    return ReportInput(modules)
