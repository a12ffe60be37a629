"""A module file of the person's own: the loader's checks, and whether it fits the others."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from intarsia.artifacts import modules_of, open_artifact
from intarsia.composition.module_paths import header_of
from intarsia.errors import FileError, IntarsiaError
from intarsia.models import Model
from intarsia.modules import Bank, Module
from intarsia.studio.session import Session

SUFFIX = ".safetensors"
MOST = 200  # files of a folder that are offered
LOOKED_AT = 5000  # files of a folder whose headers are read


@dataclass(frozen=True)
class Loaded:
    """What a file brought: the new modules, by the name in the file and the one here."""

    names: tuple[tuple[str, str], ...]
    caution: str = ""

    @property
    def said(self) -> str:
        if not self.names:
            return "all that this file holds is here already"
        told = (here if here == own else f"{own} as {here!r}" for own, here in self.names)
        renamed = any(here != own for own, here in self.names)
        why = ", since that name is taken" if renamed else ""
        caution = f"; its weights cannot be added to the others': {self.caution}"
        return f"loaded {', '.join(told)}{why}, to be switched on{caution if self.caution else ''}"


def load(session: Session, path: Path, called: str | None = None) -> Loaded:
    """Read a module, or the parts of a composition, into the session; what is here is left out.

    Errors name the file as it was `called`, not where a browser's upload happens to lie.
    """
    try:
        parts = _parts(path, session.read[0].factory if session.read else None)
    except IntarsiaError as error:
        raise FileError(str(error).replace(str(path), called or str(path))) from error
    here = {module.digest for module in session.read if module.name in {p.name for p in parts}}
    names, cautions = [], []
    try:
        for part in parts:
            if part.digest not in here:
                name, caution = session.take(part)
                names.append((part.name, name))
                cautions.append(caution)
    except IntarsiaError as error:
        raise FileError(f"{called or path}: {error}") from error
    return Loaded(tuple(names), next(filter(None, cautions), ""))


def load_from_folder(session: Session, name: str) -> Loaded:
    """Read a file of the folders that the studio was given, and of no other place."""
    for folder in session.folders:
        path = (folder / name).resolve()
        if path.is_relative_to(folder) and path.suffix == SUFFIX and path.is_file():
            return load(session, path, name)
    raise FileError(f"{name}: is not a module file in the folder that the studio was given")


def others(session: Session) -> list[str]:
    """Files of these folders that hold a module which is not here yet, by their names there."""
    here = [json.loads(json.dumps(module.packed()[0])) for module in session.read]
    return list(islice(_others(session, here), MOST))


def _others(session: Session, here: list[dict[str, Any]]) -> Iterator[str]:
    for folder in session.folders:
        for path in islice(sorted(folder.rglob(f"*{SUFFIX}")), LOOKED_AT):
            if path.is_file() and path.resolve().is_relative_to(folder):
                parts = _headers(path, path.stat().st_mtime_ns)
                fitting = [p for p in parts if p.get("catalogue") == list(session.catalogue)]
                if any(part not in here for part in fitting):
                    yield str(path.relative_to(folder))


@lru_cache(maxsize=LOOKED_AT)
def _headers(path: Path, changed: int) -> tuple[dict[str, Any], ...]:
    """What a file says of its modules, as it was when it `changed` last; checked when loaded."""
    header = header_of(path)
    parts = header.get("parts", [header])
    aside = ("format", "version", "digest")
    return tuple(
        {key: value for key, value in part.items() if key not in aside}
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict)
    )


def _parts(path: Path, model: Model | None) -> tuple[Module, ...]:
    artifact = open_artifact(path, model)
    if isinstance(artifact, Bank):
        raise FileError(f"{path}: is a folder, give the file of a module")
    return modules_of(artifact)
