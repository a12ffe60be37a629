"""Modules that were trained together, in order, and the folder that holds them."""

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from torch import nn

from intarsia.data import named_set, set_name
from intarsia.encoders.encoder import EncoderLike
from intarsia.errors import (
    DamagedError,
    FileError,
    FileWarning,
    RecipeError,
    VersionError,
    comma_separated,
    nearest,
    shortened,
)
from intarsia.files import digest_of, is_no_file, link_whole, plain, sealed, write_whole
from intarsia.limits import account, current
from intarsia.models import Model, as_model
from intarsia.modules import file, header
from intarsia.modules.bases.base_weights import BASE, BaseFinder, BaseSource
from intarsia.modules.health import KEY, Finding, Health, warn
from intarsia.modules.module import Module

LISTING = "bank.json"
"""The file of a bank's folder that names its modules in order."""

FORMAT = {"format": "intarsia-bank", "version": 1}
DIVERGED = ("it diverged in training and is kept out", "lower its learning rate")


class Bank:
    """An ordered set of modules, looked up by position, name, or classes where these are unique.

    `diverged` names the modules that training gave up and kept out; `report` is plain JSON;
    `rounds` are the banks of the rounds before, where training kept them (saved apart).
    """

    def __init__(
        self,
        modules: Iterable[Module],
        diverged: Iterable[str] = (),
        report: Mapping[str, Any] | None = None,
    ) -> None:
        self._modules = tuple(modules)
        self.diverged = tuple(diverged)
        self.report: dict[str, Any] = plain(report or {}, "report")
        self.rounds: tuple[Bank, ...] = ()
        if twice := [name for name, count in Counter(self.names).items() if count > 1]:
            raise RecipeError(
                f"a bank has two modules called {shortened(twice[0])}: rename one of them"
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(module.name for module in self._modules)

    @property
    def seeds(self) -> tuple[Any, ...]:
        """The seeds the modules were trained with, each once, in order."""
        return tuple(dict.fromkeys(module.provenance.get("seed") for module in self._modules))

    @property
    def health(self) -> Health:
        """What is wrong with its modules, those included that diverged; `health.ok` if nothing."""
        return Health.of(
            (module.health for module in self._modules),
            *(Finding("undertrained", name, *DIVERGED) for name in self.diverged),
        )

    def seed(self, seed: int) -> "Bank":
        """The modules of one seed, which share one origin."""
        modules = [m for m in self._modules if m.provenance.get("seed") == seed]
        if not modules:
            raise RecipeError(f"the bank has no module of seed {seed!r}; its seeds: {self.seeds}")
        diverged = [n for n in self.diverged if len(self.seeds) == 1 or n.endswith(f"-s{seed}")]
        bank = Bank(modules, diverged, self.report)
        bank.rounds = tuple(earlier.seed(seed) for earlier in self.rounds)
        return bank

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules)

    @overload
    def __getitem__(self, key: int | str) -> Module: ...
    @overload
    def __getitem__(self, key: slice) -> "Bank": ...
    def __getitem__(self, key: int | str | slice) -> "Module | Bank":
        if isinstance(key, slice):
            return Bank(self._modules[key], self.diverged, self.report)
        if isinstance(key, str):
            return find(self._modules, key)
        if not -len(self) <= key < len(self):
            raise RecipeError(f"the bank has {len(self)} modules, there is no number {key}")
        return self._modules[key]

    def __repr__(self) -> str:
        return f"Bank({comma_separated(self.names)})"

    @property
    def file_names(self) -> list[str]:
        """The files of its modules in a folder, in their order."""
        based = any(module.base is not None for module in self)
        return file_names(self.names, taken=[BASE] if based else [])

    def save(
        self,
        folder: str | Path,
        written: Mapping[str, Path] | None = None,
        base_file: Path | None = None,
    ) -> None:
        """One file per module, then `bank.json`, which lists them in order; each written whole.

        All carry digests, so that `load` tells whether they are as they were written. What they
        are changes of is written once, as `base.safetensors`, or linked to `base_file`.

        The list also says what is wrong with them, under `health`; loading checks them again.
        `written` has files, by module, that hold them already: these are not written again.
        """
        folder, written = Path(folder), written or {}
        names = self.file_names
        for base in {m.base.digest: m.base for m in self if m.base is not None}.values():
            base.save_beside(folder, base_file)
        for name, module in zip(names, self._modules, strict=True):
            if module.name in written:
                link_whole(written[module.name], folder / name)
            else:
                module.save(folder / name)
        health = self.health
        listing = {
            **FORMAT,
            "files": [{"file": n, "digest": m.digest} for n, m in zip(names, self, strict=True)],
            "diverged": list(self.diverged),
            "report": self.report,
            **({} if health.ok else {KEY: health.to_json()}),
        }
        write_whole(folder / LISTING, sealed(listing))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        model: Model | nn.Module | None = None,
        *,
        base: BaseSource | None = None,
        quiet: bool = False,
        encoder: EncoderLike | None = None,
    ) -> "Bank":
        """Read a folder that `save` wrote; everything else is as in Module.load."""
        folder = Path(folder)
        listing = _listing(folder / LISTING)
        modules: list[Module] = []
        with account():  # one for all of them
            find, factory = BaseFinder(folder, base), as_model(model)
            for name, digest in listing["files"]:
                modules.append(
                    Module.load(folder / name, factory, base=find, quiet=True, encoder=encoder)
                )
                if encoder is not None:
                    encoder = modules[-1].encoder  # which is known by now, and quicker to compare
                if modules[-1].digest != digest:
                    raise DamagedError(
                        f"{folder / name}: is not the module that {LISTING} lists, a save was "
                        "interrupted or the file was replaced: save the bank again"
                    )
        with file.reading(folder / LISTING):
            bank = cls(modules, listing["diverged"], listing["report"])
        if not quiet:
            if not listing["sealed"]:
                warnings.warn(
                    f"{folder / LISTING} has no digest, so nothing tells whether it was altered: "
                    "save the bank again",
                    FileWarning,
                    stacklevel=2,
                )
            warn(bank.health, str(folder))
        return bank

    @staticmethod
    def report_of(folder: str | Path) -> dict[str, Any]:
        """The report of a saved bank, without reading its modules."""
        return _listing(Path(folder) / LISTING)["report"]


def find(modules: Iterable[Module], key: str) -> Module:
    """The module of this name, or the only one with these classes: `3`, `0+1`, `"C++"+Java`."""
    modules = tuple(modules)
    named = [m for m in modules if m.name == key]
    matching = named or [m for m in modules if list(m.rewarded) == named_set(key, m.catalogue)]
    if len(matching) > 1:
        raise RecipeError(
            f"{len(matching)} modules recognise {key!r}: {', '.join(m.name for m in matching)}; "
            "use one of these names, or bank.seed(...) first"
        )
    if not matching:
        known = {m.name for m in modules} | {set_name(m.rewarded, m.catalogue) for m in modules}
        raise RecipeError(f"there is no module {key!r}: {nearest(key, known)}")
    return matching[0]


def file_names(names: Iterable[str], taken: Sequence[str] = ()) -> list[str]:
    """The files of modules in one folder, in their order; none has a name that is taken."""
    files = list(taken)
    for name in names:
        files.append(file_name(name, taken=files))
    return files[len(taken) :]


def file_name(name: str, taken: Iterable[str] = ()) -> str:
    """A file name for a module on any file system; changed names get a digest to stay apart."""
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", name)[:80]
    reserved = re.fullmatch(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?", safe) or safe[:1] == "."
    clash = f"{safe}.safetensors".lower() in {n.lower() for n in taken}
    if safe != name or reserved or clash:
        # Names that were paths may have surrogates, where a path's bytes are not UTF-8.
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        safe = f"{safe.lstrip('.')}-{digest[:8]}"
    return f"{safe}.safetensors"


def _listing(path: Path) -> dict[str, Any]:
    with file.reading(path):
        return _checked_listing(path)


def _checked_listing(path: Path) -> dict[str, Any]:
    try:
        if is_no_file(path):
            raise FileError("is not a file: give the folder that a training run or Bank.save made")
        with path.open("rb") as listing:
            content = listing.read(current().header + 1)
    except OSError as error:
        raise FileError(
            f"{error.strerror or error}: give the folder that a training run or Bank.save made"
        ) from error
    current().check("header", len(content), "it has {} or more")
    value = file.parse(content, "listing")
    if {key: value.get(key) for key in FORMAT} != FORMAT:
        raise VersionError(
            f"its format is not {FORMAT}: it was made by another version of intarsia"
        )
    digest = value.pop("digest", None)  # which the first banks did not have
    if digest not in (None, digest_of(value)):
        raise DamagedError(
            "was altered or damaged, its digest does not fit its content: save the bank again"
        )
    value.pop(KEY, None)
    header.check_keys(value, (*FORMAT, "files", "diverged", "report"))
    if not isinstance(value["files"], list) or not isinstance(value["report"], dict):
        raise FileError("it lists no files or has no report: save the bank again")
    current().check("parts", len(value["files"]), "lists {} modules")
    files = []
    for entry in value["files"]:
        if not isinstance(entry, dict):
            raise FileError(f"its entry {shortened(entry)} is not a file: save the bank again")
        header.check_keys(entry, ("file", "digest"))
        name = header.text(entry["file"], "file")
        if not re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]*\.safetensors", name):
            raise FileError(f"its entry {shortened(name)} is not a file of this folder")
        files.append((name, header.text(entry["digest"], "digest")))
    return {
        "files": files,
        "diverged": header.texts(value["diverged"], "diverged"),
        "report": value["report"],
        "sealed": digest is not None,
    }
