"""A module file of the person's own: the loader's checks, and whether it fits the others."""

from pathlib import Path

from intarsia.composition import Composition
from intarsia.composition.opening import open_path
from intarsia.errors import FileError, IntarsiaError
from intarsia.modules import Bank, Module
from intarsia.studio.session import Session

SUFFIX = ".safetensors"
MOST = 200  # files of a folder that are offered


def load(session: Session, path: Path, called: str | None = None) -> tuple[tuple[str, ...], str]:
    """Read a module, or the parts of a composition, into the session.

    Gives the names of what is new and a caution, empty where there is none. Errors name the file
    as it was `called`, not where a browser's upload happens to lie.
    """
    try:
        parts = _parts(path)
    except IntarsiaError as error:
        raise FileError(str(error).replace(str(path), called or str(path))) from error
    new = [part for part in parts if part.name not in session.names]
    if not new:
        raise FileError(
            f"{called or path}: module {parts[0].name!r} is here already: rename one of them, or "
            "start the studio without the other"
        )
    cautions = []
    try:
        for part in new:
            cautions.append(session.add(part))
    except IntarsiaError as error:
        raise FileError(f"{called or path}: {error}") from error
    return tuple(part.name for part in new), next(filter(None, cautions), "")


def load_from_folder(session: Session, name: str) -> tuple[tuple[str, ...], str]:
    """Read a file of the folders that the studio was given, and of no other place."""
    for folder in session.folders:
        path = (folder / name).resolve()
        if path.is_relative_to(folder) and path.suffix == SUFFIX and path.is_file():
            return load(session, path, name)
    raise FileError(f"{name}: is not a module file in the folder that the studio was given")


def others(session: Session) -> list[str]:
    """Files of these folders that hold no module of the session yet, by their names there."""
    found = []
    for folder in session.folders:
        for path in sorted(folder.rglob(f"*{SUFFIX}"))[:MOST]:
            if path.resolve().is_relative_to(folder) and path.stem not in session.names:
                found.append(str(path.relative_to(folder)))
    return found


def _parts(path: Path) -> tuple[Module, ...]:
    thing = open_path(path)
    if isinstance(thing, Bank):
        raise FileError(f"{path}: is a folder, give the file of a module")
    return thing.parts if isinstance(thing, Composition) else (thing,)
