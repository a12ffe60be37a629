"""The lock: one version of every package for every platform, with the digests of its files.

    python requirements/lock.py             resolve anew, keeping versions that still fit
    python requirements/lock.py --upgrade   resolve anew, to the newest versions
    python requirements/lock.py --check     fail where the lock does not answer to pyproject.toml

uv resolves all extras for all platforms at once; what comes out is cut into a chain of files:
core.txt for the package itself, backbones.txt for pretrained weights, studio.txt for the page in
the browser, dev.txt for the rest.
torch.txt holds torch and the libraries of its CUDA build apart from these, with the digests of the
build that the package index serves: builds for other hardware have the same version and others.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
# A file and the one it goes on from.
CHAIN = {"core": None, "backbones": "core", "studio": "backbones", "dev": "studio"}
TORCH = re.compile(r"(torch|triton|cuda-.+|nvidia-.+)$")
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)\s*(?:;\s*([^\\]+?))?\s*(?:\\|$)")


@dataclass(frozen=True)
class Pin:
    """One version of a package, where it is meant for, and the digests of its files."""

    name: str
    version: str
    marker: str | None
    digests: tuple[str, ...]
    file: str
    """The lock file that names it: core, backbones, studio, dev or torch."""

    @property
    def block(self) -> str:
        """The lines that pip reads."""
        where = f" ; {self.marker}" if self.marker else ""
        digests = "".join(f" \\\n    --hash={digest}" for digest in self.digests)
        return f"{self.name}=={self.version}{where}{digests}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a change")
    options = parser.parse_args()
    files = write_files(resolve(options.upgrade))
    if options.check:
        stale = [name for name, text in files.items() if _text(FOLDER / name) != text]
        sys.exit(f"run `make lock`: {', '.join(stale)} would change" if stale else None)
    for name, text in files.items():
        (FOLDER / name).write_text(text)
        print(f"requirements/{name}: {len(parse(text, name))} packages")


def read_lock() -> list[Pin]:
    """Every pin of the lock, in the order of its files."""
    pins = []
    for name in [*CHAIN, "torch"]:
        pins += parse((FOLDER / f"{name}.txt").read_text(), name)
    return pins


def parse(text: str, file: str) -> list[Pin]:
    """The pins of a requirements file as uv and this script write it."""
    pins = []
    for block in re.split(r"\n(?=\S)", text):
        if result := PIN.match(block):
            digests = tuple(re.findall(r"--hash=(\S+)", block))
            pins.append(Pin(_normal(result[1]), result[2], result[3], digests, file))
    return pins


def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def resolve(upgrade: bool) -> list[Pin]:
    """All pins, each with the first file of the chain that needs it."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        before = "".join(pin.block for pin in read_lock()) if _locked() else ""
        (work / "all.txt").write_text("" if upgrade else before)
        whole = _compile(work, "all", ["--extra", "dev", "--generate-hashes"])
        needed = {}
        with_weights = ["--extra", "backbones"]
        wanted = {"core": [], "backbones": with_weights}
        wanted["studio"] = [*with_weights, "--extra", "studio"]
        for name, extras in wanted.items():
            shutil.copy(work / "all.txt", work / f"{name}.txt")  # the versions that it prefers
            needed[name] = {pin.name for pin in _compile(work, name, extras)}
    return [
        Pin(pin.name, pin.version, pin.marker, pin.digests, _file(pin.name, needed))
        for pin in whole
    ]


def write_files(pins: list[Pin]) -> dict[str, str]:
    """The text of every lock file."""
    files = {}
    for name, base in [*CHAIN.items(), ("torch", None)]:
        head = "# Written by requirements/lock.py (`make lock`); do not edit.\n"
        head += f"-r {base}.txt\n" if base else ""
        files[f"{name}.txt"] = head + "".join(pin.block for pin in pins if pin.file == name)
    return files


def _compile(work: Path, name: str, words: list[str]) -> list[Pin]:
    """What uv resolves, for all platforms and from the oldest Python on."""
    python = project()["project"]["requires-python"].removeprefix(">=")
    (work / "build.in").write_text("\n".join(project()["build-system"]["requires"]) + "\n")
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", python),
        *("--extra", "pinned", *words, "--output-file", str(work / f"{name}.txt")),
        *("pyproject.toml", str(work / "build.in")),
    ]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return parse((work / f"{name}.txt").read_text(), name)


def _file(name: str, needed: dict[str, set[str]]) -> str:
    if TORCH.match(name):
        return "torch"
    return next((file for file, names in needed.items() if name in names), "dev")


def _normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _locked() -> bool:
    return all((FOLDER / f"{name}.txt").exists() for name in [*CHAIN, "torch"])


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    main()
