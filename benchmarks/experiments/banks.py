"""The banks that the benchmarks of composition share: trained once, kept in a folder.

    python benchmarks/experiments/banks.py --data mnist --models shallow deep --seeds 0 1

Each bank is one `ia.train` into FOLDER/DATA-MODEL-KIND; done ones are taken as they are. The
settings of the kinds were chosen on validation samples by `merge.py --choose`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import intarsia as ia
from benchmarks.record import RESULTS

FOLDER = Path("banks")
CHOICE = RESULTS / "merge_choice.json"
HIDDEN = {"shallow": "512,", "deep": "512, 256"}
DATA = ("mnist", "fashion_mnist")
CAREFUL = {"schedule": "cosine", "select": "loss"}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "released": {"preset": "released", "model": "mlp"},  # its own scaling and dropout
    "territory": {"pruning": "territory", "epochs": 40, **CAREFUL},
    "sparse": {"sparsity": 0.95, "epochs": 20, **CAREFUL},
    "joint": {"sparsity": 0, "epochs": 40, **CAREFUL},
    # Trained on a CPU within minutes: more pairs for compatibility.py.
    "short95": {"sparsity": 0.95, "epochs": 3},
    "short99": {"epochs": 3},
}
SHARED = ("paper", "territory", "sparse", "joint")
PRESET = ("paper", "released", "short95", "short99")  # with the preset's dropout
LENET = {
    "territory": {"pruning": "territory", **CAREFUL},
    "sparse": {},  # the preset's 60%
    "joint": {"sparsity": 0, **CAREFUL},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--models", nargs="+", default=list(HIDDEN))
    parser.add_argument("--kinds", nargs="+", default=list(SHARED))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--banks", type=Path, default=FOLDER)
    options = parser.parse_args()
    for data in options.data:
        for model in options.models:
            for kind in options.kinds:
                began = time.perf_counter()
                bank_of(data, model, kind, options.seeds, options.banks)
                print(f"{data} {model} {kind}: {time.perf_counter() - began:.1f} s", flush=True)


def bank_of(
    data: str, model: str, kind: str, seeds: Sequence[int], folder: Path = FOLDER
) -> ia.Bank:
    """The bank, trained if it is not in the folder yet."""
    place = folder / f"{data}-{model}-{kind}"
    return ia.train(
        data, out=place, seeds=list(seeds), progress=False, **settings_of(data, model, kind)
    )


def settings_of(data: str, model: str, kind: str, dropout: float | None = None) -> dict[str, Any]:
    """What `ia.train` is called with; a dropout given here goes before the chosen one."""
    if model == "lenet":
        chosen = {"preset": "paper", "model": "lenet", **LENET[kind]}
    else:
        if dropout is None:
            dropout = 0.5 if kind in PRESET else best_dropout(data, model, kind)
        network = f"mlp(hidden=({HIDDEN[model]}), dropout={dropout})"
        chosen = {"preset": "paper", "model": network, **KINDS[kind]}
    if kind == "joint":
        chosen["partition"] = [list(ia.load_data(data).catalogue)]
    return chosen


def best_dropout(data: str, model: str, kind: str) -> float:
    """The best on validation samples; the joint network has its own, it must be no straw man."""
    rows = json.loads(CHOICE.read_text())["rows"]
    known = [r for r in rows if (r["data"], r["model"], r["kind"]) == (data, model, kind)]
    return float(max(known, key=lambda row: row["validation"]["mean"])["dropout"])


if __name__ == "__main__":
    main()
