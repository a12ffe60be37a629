"""Module files that users bring: the loader's checks, and whether they fit the others."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from intarsia.artifacts import modules_of, open_artifact
from intarsia.composition.module_paths import header_of
from intarsia.errors import FileError, IntarsiaError
from intarsia.limits import Limits, current, limited
from intarsia.models import Model
from intarsia.modules import Bank, Base, Module
from intarsia.studio.session import Session

SUFFIX = ".safetensors"
MOST = 200  # files that are offered
LOOKED_AT = 5000  # files of a folder whose headers are read


@dataclass(frozen=True)
class LoadResult:
    """The new modules of a file: for each, its name in the file and its name here."""

    names: tuple[tuple[str, str], ...]
    caution: str = ""

    @property
    def message(self) -> str:
        """What to say of it on the page."""
        if not self.names:
            return "all modules of this file are here already"
        loaded = (here if here == own else f"{own} as {here!r}" for own, here in self.names)
        renamed = any(here != own for own, here in self.names)
        why = ", since that name is taken" if renamed else ""
        caution = f"; its weights cannot be added to the others': {self.caution}"
        return f"loaded {', '.join(loaded)}{why}; switch it on{caution if self.caution else ''}"


def load(
    session: Session,
    path: Path,
    name: str | None = None,
    check: Callable[[Sequence[Module]], None] = lambda new: None,
    limits: Limits | None = None,
) -> LoadResult:
    """Read a module, or the parts of a composition, into the session; known ones are left out.

    Errors call the file `name`, not by the path of a browser's upload. `check` is given the new
    modules before any is added, and may refuse them. The limits are those of an upload, unless
    others are given.
    """
    name = name or str(path)
    try:
        with limited(limits or Limits.upload()):
            factory = session.originals[0].factory if session.originals else None
            parts = _parts(path, factory, _known_base(session, path))
    except IntarsiaError as error:
        raise FileError(str(error).replace(str(path), name)) from error
    new = {part.name for part in parts}
    known = {module.digest for module in session.originals if module.name in new}
    parts = tuple(part for part in parts if part.digest not in known)
    names, cautions = [], []
    try:
        check(parts)
        for part in parts:
            here, caution = session.add_renamed(part)
            names.append((part.name, here))
            cautions.append(caution)
    except IntarsiaError as error:
        raise FileError(f"{name}: {error}") from error
    return LoadResult(tuple(names), next(filter(None, cautions), ""))


def _known_base(session: Session, path: Path) -> Base | None:
    """The base of a module here that the file names too: a change comes without its base."""
    digest = header_of(path).get("base")
    bases = (m.base for m in session.originals if m.base is not None)
    return next((base for base in bases if base.digest == digest), None)


def load_from_folder(
    session: Session, name: str, check: Callable[[Sequence[Module]], None] = lambda new: None
) -> LoadResult:
    """Read a file from the folders that the studio was given, and from nowhere else."""
    for folder in session.folders:
        path = (folder / name).resolve()
        if path.is_relative_to(folder) and path.suffix == SUFFIX and path.is_file():
            return load(session, path, name, check, current())
    raise FileError(f"{name}: is not a module file in the folder that the studio was given")


def loadable_files(session: Session) -> list[str]:
    """Files in these folders with a module that is not here yet, relative to their folder."""
    known = [json.loads(json.dumps(module.packed()[0])) for module in session.originals]
    return list(islice(_loadable(session, known), MOST))


def _loadable(session: Session, known: list[dict[str, Any]]) -> Iterator[str]:
    for folder in session.folders:
        for path in islice(sorted(folder.rglob(f"*{SUFFIX}")), LOOKED_AT):
            if path.is_file() and path.resolve().is_relative_to(folder):
                parts = _headers(path, path.stat().st_mtime_ns)
                fitting = [p for p in parts if p.get("catalogue") == list(session.catalogue)]
                if any(part not in known for part in fitting):
                    yield str(path.relative_to(folder))


@lru_cache(maxsize=LOOKED_AT)
def _headers(path: Path, changed: int) -> tuple[dict[str, Any], ...]:
    """The headers of a file's modules, cached until it changes; they are checked when loaded."""
    header = header_of(path)
    parts = header.get("parts", [header])
    skipped = ("format", "version", "digest")
    return tuple(
        {key: value for key, value in part.items() if key not in skipped}
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict)
    )


def _parts(path: Path, model: Model | None, base: Base | None) -> tuple[Module, ...]:
    artifact = open_artifact(path, model, base)
    if isinstance(artifact, Bank):
        raise FileError(f"{path}: is a folder: give the file of a module")
    return modules_of(artifact)
