"""Time training against named baselines, all in one run.

    python benchmarks/training.py                  seconds per module-epoch on this CPU
    python benchmarks/training.py --device cuda    stacks of shallow modules on a GPU

On the CPU each way runs in a process of its own, so that its peak memory can be read:
  usual      one network, DataLoader over per-sample transforms, 4 workers, unfused Adam
  plain      a loop on resident tensors, unfused Adam (the engine `plain`), a whole pruning run
  intarsia   the engine that `auto` chooses, the same run for ten modules
A module-epoch of plain and intarsia includes its share of validation and pruning; that of usual
is training alone. Results go to docs/results/training_DEVICE.json.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

import intarsia as ia

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--epochs", type=int, help="epochs of a round (CPU: 2, CUDA: 20)")
    parser.add_argument("--stacks", type=int, nargs="+", default=[1, 10, 50, 200])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.device == "cpu":
        result = on_cpu(options.data, options.model, options.epochs or 2)
    else:
        from training_cuda import on_cuda

        result = on_cuda(options.data, options.epochs or 20, options.stacks)
    result = {"command": command(options), "date": f"{datetime.now(UTC):%Y-%m-%d}"} | result
    result["versions"] = {"python": platform.python_version(), "torch": str(torch.__version__)}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"training_{options.device}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def command(options: argparse.Namespace) -> str:
    return f"python benchmarks/training.py --device {options.device} --data {options.data}"


def on_cpu(data: str, model: str, epochs: int) -> dict[str, Any]:
    """Seconds per module-epoch and peak memory of the three ways, and their ratios."""
    threads = torch.get_num_threads()
    rows = {
        "usual": apart(usual, data, model),
        "plain": apart(whole_run, data, model, epochs, "plain", ["0", "1"]),
        "intarsia": apart(whole_run, data, model, epochs, "auto", None),
    }
    ours = rows["intarsia"]["seconds_per_module_epoch"]
    ratios = {
        f"{name}/intarsia": round(rows[name]["seconds_per_module_epoch"] / ours, 2)
        for name in ("usual", "plain")
    }
    return {
        "machine": f"{threads} threads, {platform.machine()}",
        "run": f"{data}, {model}, 3 rounds of {epochs} epochs, batch 64, sparsity 0.99",
        "ways": rows,
        "ratios": ratios,
    }


def apart(function: Any, *arguments: Any) -> dict[str, Any]:
    """Run in a new process; adds the peak memory of it and its workers."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:  # may have workers of its own
        return pool.submit(_measured, function, *arguments).result()


def _measured(function: Any, *arguments: Any) -> dict[str, Any]:
    result = function(*arguments)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    workers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return result | {"peak_MiB": own // 1024, "peak_MiB_of_a_worker": workers // 1024}


class PerSample(torch.utils.data.Dataset):
    """Images that are turned into scaled tensors one at a time, as image libraries do."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x.numpy(), y.numpy()

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.from_numpy(self.x[index]).to(torch.float32).div(255)
        return image.sub_(0.5).div_(0.5), int(self.y[index])


def usual(data_name: str, model: str) -> dict[str, Any]:
    """One epoch of one module the usual way."""
    data = ia.load_data(data_name)
    loader = torch.utils.data.DataLoader(
        PerSample(data.train.x, data.train.y), batch_size=64, shuffle=True, num_workers=4
    )
    network = ia.initialise(model, data.shape, data.classes, 0)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, fused=False, foreach=False)
    table = ia.objective("me", data.classes, [0]).table
    distance = nn.KLDivLoss(reduction="batchmean")
    started = time.perf_counter()
    for x, y in loader:
        optimiser.zero_grad()
        distance(torch.log_softmax(network(x) / 5, 1), table[y]).backward()
        optimiser.step()
    return {"seconds_per_module_epoch": round(time.perf_counter() - started, 3), "epochs": 1}


def whole_run(
    data_name: str, model: str, epochs: int, engine: str, classes: list[str] | None
) -> dict[str, Any]:
    """A whole pruning run: two pruning rounds and the last one."""
    data = ia.load_data(data_name)
    partition = [[c] for c in classes or data.catalogue]
    started = time.perf_counter()
    bank = ia.train(data, model=model, epochs=epochs, engine=engine, partition=partition)
    seconds = time.perf_counter() - started
    return {
        "seconds_per_module_epoch": round(seconds / (3 * epochs * len(bank)), 3),
        "engine": bank.report["engine"],
        "modules": len(bank),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    main()
