"""From the words of the command to what the studio starts with: modules, operator, data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intarsia.artifacts import data_for, modules_of, open_artifact
from intarsia.composition import Composition
from intarsia.data import Data
from intarsia.errors import FileError
from intarsia.models import Model
from intarsia.modules import Bank, Module
from intarsia.studio.session import Session


@dataclass(frozen=True, eq=False)
class Opened:
    """What paths hold, and the data to measure it on."""

    modules: tuple[Module, ...]
    like: Composition | None  # the one among them, whose operator and options are meant
    data: Data
    folders: tuple[Path, ...]  # those given: files are read from nowhere else
    notes: tuple[str, ...]  # what a person should know of them

    def session(self, rows: int | None = None) -> Session:
        """What the page is about, measured on so many test samples."""
        operator = None if self.like is None else self.like.operator
        return Session(
            self.modules, self.data, operator, like=self.like, rows=rows, folders=self.folders
        )


def open_paths(
    paths: Sequence[Path],
    source: str | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    model: Model | None = None,
) -> Opened:
    """Read bank folders, module files, compositions, or what a demo left.

    The data are by default those that the modules learned from, split as they were then. Of a bank
    with several seeds the first is taken. `model` as in Module.load.
    """
    if not paths:
        raise FileError("there is nothing to open: give a bank folder, a demo or module files")
    modules: dict[str, Module] = {}
    notes = []
    like = None
    for path in paths:
        artifact = open_artifact(path, model)
        if isinstance(artifact, Composition):
            like = artifact
        if isinstance(artifact, Bank) and seed is not None:
            artifact = artifact.seed(seed)
        elif isinstance(artifact, Bank) and len(artifact.seeds) > 1:
            artifact = artifact.seed(artifact.seeds[0])
            notes.append(f"{path}: modules of seed {artifact.seeds[0]}, --seed chooses others")
        for module in modules_of(artifact):
            if module.name in modules:
                raise FileError(
                    f"{path}: a module {module.name!r} was read before: leave one of them out"
                )
            modules[module.name] = module
    first = next(iter(modules.values()))
    data, same = data_for(first, source, options or {})
    if same is None:
        notes.append(f"{paths[0]} does not say what data it was trained on")
    elif not same:
        notes.append(f"{data.name} is not what {paths[0]} was trained on, or it is split otherwise")
    folders = tuple(path.resolve() for path in paths if path.is_dir())
    return Opened(tuple(modules.values()), like, data, folders, tuple(notes))
