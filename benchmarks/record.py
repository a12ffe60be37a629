"""What every result file has: where its numbers come from, then the numbers."""

import json
import platform
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"


def made_by(
    script: str, *words: object, machine: str | None = None, **versions: str
) -> dict[str, Any]:
    """The command, the date, the machine (by default the GPU, or else the CPU) and versions.

    `script` is the `__file__` of what is running, `words` what it was given.
    """
    if machine is None and torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    place = str(Path(script).resolve().relative_to(ROOT))
    known = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {
        "command": " ".join(["python", place, *map(str, words)]),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine or f"CPU, {platform.machine()}",
        "versions": known | versions,
    }


def save(folder: Path, name: str, result: dict[str, Any]) -> None:
    """One JSON file; what is not a number is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, allow_nan=False)
    (folder / f"{name}.json").write_text(text + "\n")


def spread(values: Sequence[float], digits: int = 5) -> dict[str, float]:
    """Mean and standard deviation."""
    return {
        "mean": round(statistics.mean(values), digits),
        "sd": round(statistics.stdev(values), digits) if len(values) > 1 else 0.0,
    }


def spread_of_all(values: Sequence[float]) -> dict[str, Any]:
    """Mean and standard deviation, and every value to four digits."""
    return {**spread(values), "values": " ".join(f"{value:.4f}" for value in values)}
