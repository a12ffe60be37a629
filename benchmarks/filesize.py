"""How small is a sparse module's file, and does it load to the same logits bit for bit?

    python benchmarks/filesize.py

trains one shallow MNIST module for one epoch a round, writes the unpruned module of round one and
the pruned one of the last round, and loads both. Results go to docs/results/filesize.json.
"""

import argparse
import json
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import intarsia as ia

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="mlp(512)")
    parser.add_argument("--sparsity", type=float, default=0.99)
    parser.add_argument("--out", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    data = ia.load_data(wanted.data)
    bank = ia.train(
        data,
        preset="paper",
        model=wanted.model,
        sparsity=wanted.sparsity,
        epochs=1,
        partition=[data.catalogue[:1]],
        keep_rounds=True,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.safetensors"
        files = {
            name: measured(module, path, data.test.x)
            for name, module in (("dense", bank.rounds[0][0]), ("sparse", bank[0]))
        }
    result = {
        "command": (
            f'python benchmarks/filesize.py --data {wanted.data} --model "{wanted.model}" '
            f"--sparsity {wanted.sparsity}"
        ),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"CPU, {platform.machine()}",
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "parameters": bank[0].parameters,
        "files": files,
        "dense/sparse": round(files["dense"]["bytes"] / files["sparse"]["bytes"], 2),
    }
    wanted.out.mkdir(parents=True, exist_ok=True)
    (wanted.out / "filesize.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def measured(module: ia.Module, path: Path, x: torch.Tensor) -> dict[str, Any]:
    """The size of a module's file, and whether what it loads to answers alike on all of x."""
    module.save(path)
    with torch.no_grad():
        before, after = (m.to_module()(x) for m in (module, ia.Module.load(path)))
    return {
        "bytes": path.stat().st_size,
        "density": round(module.density, 5),
        "samples": len(x),
        "same_logits": torch.equal(before, after),
    }


if __name__ == "__main__":
    main()
