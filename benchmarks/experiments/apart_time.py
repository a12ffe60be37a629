"""How long a hundred modules on features take, by what they see, against one joint network.

    python benchmarks/experiments/apart_time.py --data cifar100_lite0.npz

Training alone, loading is not counted: processor seconds of this process and those it started, and
seconds on the clock. On a GPU each way runs twice and the second run counts, since the first one
compiles kernels. Results go to docs/results/apart_time.json or apart_time_cuda.json.
"""

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from intarsia.studies.apart.visibility_study import LOADING, VISIBLE

SETTINGS: dict[str, Any] = {"model": "mlp(64)", "sparsity": 0, "learning_rate": 2e-3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="cifar100_lite0.npz")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--visibilities", nargs="+", default=["own", "past", "all"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = Path(options.data).name
    data = ia.load_data(options.data, **LOADING[name])
    joint = {"partition": [list(data.catalogue)], "objective": "xe", "negatives": "none"}
    ways: dict[str, dict[str, Any]] = {"joint network": {**joint, "epochs": 12}}
    ways |= {VISIBLE[name]: {"visibility": name} for name in options.visibilities}
    rows: list[dict[str, Any]] = []
    for way, how in ways.items():
        for _ in range(2 if options.device == "cuda" else 1):
            before, began = _seconds(), time.perf_counter()
            bank = ia.train(data, progress=False, device=options.device, **SETTINGS, **how)
            cpu, clock = _seconds() - before, time.perf_counter() - began
        epochs = bank[0].provenance["recipe"]["epochs"]
        row = {"way": way, "modules": len(bank), "epochs": epochs, "cpu": cpu, "clock": clock}
        key = "clock" if options.device == "cuda" else "cpu"
        rows.append(row | {"ratio": row[key] / (rows[0] if rows else row)[key]})
        print(rows[-1], flush=True)
    words = ["--data", name, "--device", options.device]
    words += ["--visibilities", *options.visibilities]
    result = {**made_by(__file__, *words), "cores": torch.get_num_threads(), "rows": rows}
    save(options.out, "apart_time" if options.device == "cpu" else "apart_time_cuda", result)


def _seconds() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


if __name__ == "__main__":
    main()
