"""Time training against named baselines, all in one run.

    python benchmarks/speed/training.py                  seconds per module-epoch on this CPU
    python benchmarks/speed/training.py --device cuda    stacks of shallow modules on a GPU
    python benchmarks/speed/training.py --device cuda --engines    engine by engine on a GPU

On the CPU each way runs in a process of its own, so that its peak memory can be read:
  expert     resident tensors, fused Adam, a process per core with a module each on one thread
             (expert.py), a whole pruning run
  plain      a loop on resident tensors, unfused Adam (the engine `plain`), all threads for one
             module, the same run
  usual      one network, DataLoader over per-sample transforms, 4 workers, unfused Adam
  intarsia   the engine that `auto` chooses, the same run for ten modules
A module-epoch of expert, plain and intarsia includes its part of validation and pruning; that of
usual is training alone. Results go to docs/results/training_DEVICE.json.
"""

import argparse
import json
import multiprocessing
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import intarsia as ia
from benchmarks.record import RESULTS, made_by, save
from benchmarks.speed.expert import expert_on_cpu, warm_adam

STACKS = [1, 10, 50, 200]  # modules trained together on a GPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--epochs", type=int, help="epochs of a round (CPU: 2, CUDA: 20)")
    parser.add_argument("--repeats", type=int, default=3, help="CPU: how often each way is timed")
    parser.add_argument("--stacks", type=int, nargs="+", default=STACKS)
    parser.add_argument("--engines", action="store_true", help="CUDA: time engines, not stacks")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = f"training_{options.device}"
    if options.device == "cpu":
        result = on_cpu(options.data, options.model, options.epochs or 2, options.repeats)
    else:
        from benchmarks.speed.training_cuda import engine_by_engine, on_cuda

        if options.engines:
            name, result = f"{name}_engines", engine_by_engine(options.data)
        else:
            result = on_cuda(options.data, options.epochs or 20, options.stacks)
    result = made_by(__file__, *words(options)) | result
    save(options.out, name, result)
    print(json.dumps(result, indent=1))


def words(options: argparse.Namespace) -> list[object]:
    """What the command was given beyond its defaults."""
    given: list[object] = ["--device", options.device, "--data", options.data]
    given += ["--model", f"'{options.model}'"] if options.model != "mlp" else []
    given += ["--epochs", options.epochs] if options.epochs else []
    given += ["--repeats", options.repeats] if options.repeats != 3 else []
    given += ["--engines"] if options.engines else []
    return given + (["--stacks", *options.stacks] if options.stacks != STACKS else [])


def on_cpu(data: str, model: str, epochs: int, repeats: int) -> dict[str, Any]:
    """Seconds per module-epoch and peak memory of the four ways, and the ratios of medians.

    The ways take turns, so that a busy moment of the machine does not fall on one of them alone.
    """
    threads, names = torch.get_num_threads(), list(ia.load_data(data).catalogue)
    turns = [
        {
            "expert": apart(expert_on_cpu, data, model, epochs, threads),
            "plain": apart(whole_run, data, model, epochs, "plain", names[:1]),
            "usual": apart(usual, data, model),
            "intarsia": apart(whole_run, data, model, epochs, "auto", None),
        }
        for _ in range(repeats)
    ]
    rows = {name: median([turn[name] for turn in turns]) for name in turns[0]}
    ours = rows["intarsia"]["seconds_per_module_epoch"]
    ratios = {
        f"{name}/intarsia": round(rows[name]["seconds_per_module_epoch"] / ours, 2)
        for name in rows
        if name != "intarsia"
    }
    return {
        "machine": f"{threads} threads, {platform.machine()}",
        "run": f"{data}, {model}, 3 rounds of {epochs} epochs, batch 64, sparsity 0.99",
        "ways": rows,
        "ratios": ratios,
    }


def median(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row in the middle by time (the slower one of two), with the times of all."""
    key = "seconds_per_module_epoch"
    middle = sorted(rows, key=lambda row: row[key])[len(rows) // 2]
    return middle | {"all_seconds_per_module_epoch": [row[key] for row in rows]}


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
    """Pictures made into normalised tensors one at a time, step by step as image libraries do."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = Image.fromarray(self.x[index, 0].numpy())
        return normalised(to_tensor(picture), [0.5], [0.5]), int(self.y[index])


def to_tensor(picture: Image.Image) -> torch.Tensor:
    """A picture as a channels-first tensor between 0 and 1."""
    pixels = torch.from_numpy(np.array(picture, np.uint8, copy=True))
    pixels = pixels.view(picture.size[1], picture.size[0], len(picture.getbands()))
    return pixels.permute((2, 0, 1)).contiguous().to(torch.float32).div(255)


def normalised(tensor: torch.Tensor, mean: list[float], deviation: list[float]) -> torch.Tensor:
    """(tensor - mean) / deviation by channel, in a copy and with the usual checks."""
    tensor = tensor.clone()
    shift = torch.as_tensor(mean, dtype=tensor.dtype).view(-1, 1, 1)
    scale = torch.as_tensor(deviation, dtype=tensor.dtype).view(-1, 1, 1)
    if (scale == 0).any():
        raise ValueError("a deviation is 0")
    return tensor.sub_(shift).div_(scale)


def usual(data_name: str, model: str, device: str = "cpu") -> dict[str, Any]:
    """One epoch of one module the usual way."""
    data = ia.load_data(data_name)
    loader = torch.utils.data.DataLoader(
        PerSample(data.train.x, data.train.y),
        batch_size=64,
        shuffle=True,
        num_workers=4,
        # As in a script of its own; else they would be spawned here, and import torch for 5 s.
        multiprocessing_context="fork",
    )
    network = ia.initialise(model, data.shape, data.classes, 0).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, fused=False, foreach=False)
    table = ia.objective("me", data.classes, [0]).table.to(device)
    distance = nn.KLDivLoss(reduction="batchmean")
    started = time.perf_counter()
    for x, y in loader:
        optimiser.zero_grad()
        logits = network(x.to(device))
        distance(torch.log_softmax(logits / 5, 1), table[y.to(device)]).backward()
        optimiser.step()
    float(logits.detach().sum())  # a GPU may still be at work
    seconds = round(time.perf_counter() - started, 3)
    return {"seconds_per_module_epoch": seconds, "epochs": 1, "workers": "forked"}


def whole_run(
    data_name: str,
    model: str,
    epochs: int,
    engine: str,
    classes: list[str] | None,
    device: str = "auto",
) -> dict[str, Any]:
    """A whole pruning run: two pruning rounds and the last one."""
    data = ia.load_data(data_name)
    partition = [[c] for c in classes or data.catalogue]
    warm_adam()
    started = time.perf_counter()
    settings = {"epochs": epochs, "engine": engine, "partition": partition}
    bank = ia.train(data, preset="paper", model=model, device=device, **settings)
    seconds = time.perf_counter() - started
    return {
        "seconds_per_module_epoch": round(seconds / (3 * epochs * len(bank)), 3),
        "engine": bank.report["engine"],
        "modules": len(bank),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    main()
