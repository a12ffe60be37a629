"""Cells of a store without a plan: which studies it has, and what their files hold."""

import json
from collections.abc import Sequence
from typing import Any

from intarsia.errors import FileError, StudyError
from intarsia.files import digest_of
from intarsia.studies import NAMES, STUDIES, Store, find_study
from intarsia.studies.store import CELL


def cells_in(store: Store, folders: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The cells of some folders as their files have them, and what is wrong with the others."""
    found, damaged = [], []
    paths = [p for name in folders for p in (store.path / "cells" / name).glob("*.json")]
    for path in sorted(paths):
        try:
            cell = json.loads(path.read_bytes())
            digest = cell.pop("digest")
            if digest != digest_of(cell) or {key: cell[key] for key in CELL} != CELL:
                raise ValueError
            found.append(cell)
        except OSError as error:
            raise FileError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError):
            damaged.append(f"{path.name} is damaged, its digest does not fit its content.")
    return found, damaged


def known_in(store: Store) -> list[str]:
    """The studies that have a cell in the store, ours first; a user's own where it is known."""
    there = sorted({path.parent.name for path in store.path.glob("cells/*/*.json")})
    order = [*NAMES, *STUDIES, *there]
    return [name for name in sorted(there, key=order.index) if _is_known(name)]


def _is_known(name: str) -> bool:
    try:
        find_study(name)
    except StudyError:
        return False
    return True


def nothing_in(store: Store, study: str | None) -> StudyError:
    if study is None:
        strange = sorted({path.parent.name for path in store.path.glob("cells/*/*.json")})
        own = f" ({', '.join(strange)}: import the module of your own study)" if strange else ""
        return StudyError(f"no cell of a known study is finished in {store.path}{own}: run one")
    known = known_in(store)
    told = f"it has {', '.join(known)}" if known else "run it first"
    return StudyError(f"no cell of the study {study!r} is finished in {store.path}: {told}")
