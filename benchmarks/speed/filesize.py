"""How small is a sparse module's file, and does it load to the same logits bit for bit?

    python benchmarks/speed/filesize.py

trains one shallow MNIST module for one epoch per round, writes the unpruned module of round one and
the pruned one of the last round, and loads both. Results go to docs/results/filesize.json.
"""

import argparse
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="mlp(512)")
    parser.add_argument("--sparsity", type=float, default=0.99)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    data = ia.load_data(options.data)
    bank = ia.train(
        data,
        preset="paper",
        model=options.model,
        sparsity=options.sparsity,
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
        **made_by(
            __file__,
            *("--data", options.data, "--model", f'"{options.model}"'),
            *("--sparsity", options.sparsity),
            machine=f"CPU, {platform.machine()}",
        ),
        "parameters": bank[0].parameters,
        "files": files,
        "dense/sparse": round(files["dense"]["bytes"] / files["sparse"]["bytes"], 2),
    }
    save(options.out, "filesize", result)
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
