"""The reports that the site shows: of the demo, and of a study from its archive.

mkdocs.yml has this file as a hook, so they are made whenever the site is built, in seconds, and are
always those of this code.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
STUDY = "docs/results/study_pairs.json"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reports to what the site holds, as reports/demo.html and reports/study.html."""
    for name, page in _pages().items():
        files.append(File.generated(config, f"reports/{name}.html", content=page))
    return files


def write_reports(folder: Path) -> dict[str, Path]:
    """Run the demo in a folder, and write both pages there; their paths by name."""
    pages = {"demo": folder / "demo" / "report.html", "study": folder / "study.html"}
    demo, study = ["demo", "--out", "demo"], ["report", STUDY, "-o", str(pages["study"])]
    with ThreadPoolExecutor() as pool:  # both at once
        list(pool.map(run, (demo, study), (folder, ROOT)))
    return pages


def run(words: list[str], folder: Path) -> None:
    """A command on one thread: networks are small, and of two threads each waits for the other."""
    command = [sys.executable, "-m", "intarsia", *words]
    given = {"OMP_NUM_THREADS": "1", **os.environ}
    subprocess.run(command, cwd=folder, env=given, check=True, stdout=subprocess.DEVNULL)


@cache
def _pages() -> dict[str, str]:
    """Once, however often `mkdocs serve` builds the site."""
    with TemporaryDirectory() as folder:
        return {name: path.read_text() for name, path in write_reports(Path(folder)).items()}
