"""What every result file has: where its figures come from, then the figures."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def made_by(command: str, machine: str | None = None, **versions: str) -> dict[str, Any]:
    """The command, the date, the machine (by default the GPU, or else the CPU) and versions."""
    if machine is None and torch.cuda.is_available():
        machine = torch.cuda.get_device_name()
    known = {"python": platform.python_version(), "torch": str(torch.__version__)}
    return {
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine or f"CPU, {platform.machine()}",
        "versions": known | versions,
    }


def save(folder: Path, name: str, result: dict[str, Any]) -> None:
    """One JSON file; what is not a number is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1, allow_nan=False)
    (folder / f"{name}.json").write_text(text + "\n")
