"""Write docs/licences.md: the licences of what we depend on and of the data sets.

    python docs/build/licences.py        or: make licences

The packages and their versions are the lock's. A licence is read from the metadata of the installed
package: its expression, else its classifiers, else its text; what is not installed on the machine
where this runs says so. What is known of a data set is what its entry says.
"""

import re
import sys
from importlib.metadata import Distribution, distributions

from intarsia.data import DATASETS
from pages import ROOT, table

sys.path.append(str(ROOT / "requirements"))
from lock import Pin, project, read_lock

PAGE = ROOT / "docs" / "licences.md"
NOT_READ = "not read: not installed where this page was made"
TITLES = {
    "core": "The package itself",
    "torch": "torch, and the libraries of its CUDA build",
    "backbones": "Pretrained weights besides",
    "studio": "The studio besides",
    "dev": "Other extras, tests and docs besides",
}


def main() -> None:
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))


def page() -> str:
    """The text of the page."""
    pins, installed = read_lock(), {_normal(d.name): d for d in distributions()}
    parts = [
        "# Licences",
        "<!-- Made by docs/build/licences.py (`make licences`); do not edit. -->",
        f"intarsia is under {project()['project']['license']}; it contains no code of the packages "
        "below. Each has a licence of its own, given here as its metadata says it; that text, not "
        "this page, is what binds. `make sbom` writes the same packages as CycloneDX, with the "
        "digests of their files.",
        "## Data sets",
        "None of them is part of this package; `digits` comes with scikit-learn, the others are "
        "fetched from their publishers and stay under their terms.",
        table("name|data|authors, and terms where the publisher names them", data_rows()),
        "## Packages",
    ]
    for file, title in TITLES.items():
        rows = [package_row(pin, installed) for pin in pins if pin.file == file]
        parts += [f"### {title}", table("package|version|licence", rows)]
    return "\n\n".join(parts) + "\n"


def data_rows() -> list[list[str]]:
    """Name, title and note of every data set of the package; a program may have added others."""
    return [
        [f"`{name}`", known.title, known.note]
        for name, known in DATASETS.items()
        if known.function.__module__.startswith("intarsia.")
    ]


def package_row(pin: Pin, installed: dict[str, Distribution]) -> list[str]:
    """Name, version and licence of a package of the lock."""
    distribution = installed.get(pin.name)
    known = distribution is not None and distribution.version.partition("+")[0] == pin.version
    return [pin.name, pin.version, licence(distribution) if distribution and known else NOT_READ]


def licence(distribution: Distribution) -> str:
    """In the words of a package's metadata, in one line."""
    about = distribution.metadata
    classifiers = about.get_all("Classifier") or []
    names = [c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License :: ")]
    names = [name for name in names if name != "OSI Approved"]
    said = about.get("License-Expression") or ", ".join(names) or about.get("License") or ""
    said = "" if said == "UNKNOWN" else said
    first = next((line for line in said.splitlines() if line.strip()), "") or _file(distribution)
    return re.sub(r"\s+", " ", first).strip().replace("|", "\\|") or "not named"


def _file(distribution: Distribution) -> str:
    """The first line of the licence that comes with a package."""
    paths = [p for p in distribution.files or [] if re.search(r"licen[sc]e|copying", p.name, re.I)]
    lines = paths[0].read_text().splitlines() if paths else []
    return next((line for line in lines if line.strip()), "")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
