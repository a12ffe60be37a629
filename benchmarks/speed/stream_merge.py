"""How much memory and time does it take to merge files that are larger than that memory?

    python benchmarks/speed/stream_merge.py --gigabytes 4 --folder /tmp/merge

writes a base and two models of so many GB each, as shards of a Llama's tensors, and merges them by
intarsia and by mergekit, each in a process of its own that counts its peak memory. Ours runs under
a limit on its own memory, RLIMIT_DATA, that ends it where it asks for more. Results go to
docs/results/stream_merge.json; the files are deleted.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.record import RESULTS, made_by, save
from intarsia.composition.streaming.tensor_files import TensorFiles

WIDTH, HIDDEN, HEADS, VOCABULARY = 2048, 5632, 16, 32000
MODELS = ("one", "two")
METHODS: dict[str, dict[str, Any]] = {  # of each the settings of a model
    "linear": {"weight": 0.5},
    "task_arithmetic": {"weight": 0.5},
    "slerp": {},
    "ties": {"weight": 0.5, "density": 0.5},
    "dare_ties": {"weight": 0.5, "density": 0.5},
}
RANDOM = ("dare_ties",)  # draw other numbers than mergekit: results are not compared
LIMIT = 3 * 2**30  # bytes of memory of its own that ours may ask for
SAME = 1e-6
TILE = 2**22  # random numbers that all tensors are made of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of each of the three models")
    parser.add_argument("--folder", type=Path, help="where files are written for a while")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--threads", type=int, default=1, help="of torch, in both ways")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--recipe", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.run, options.recipe, options.folder)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        result = measure(Path(folder), options.gigabytes, options.methods, options.threads)
    words = ["--gigabytes", f"{options.gigabytes:g}"]
    if options.threads != 1:
        words += ["--threads", str(options.threads)]
    if options.methods != list(METHODS):
        words += ["--methods", *options.methods]
    about = made_by(
        __file__, *words, machine=f"CPU, {platform.machine()}", **result.pop("versions")
    )
    result = {**about, **result}
    save(options.out, "stream_merge", result)
    print(json.dumps(result, indent=1))


def measure(
    folder: Path, gigabytes: float, methods: list[str], threads: int = 1, **small: int
) -> dict[str, Any]:
    """Write the models, and merge them by every method and way."""
    layers = write_models(folder, gigabytes, **small)
    ways = ["intarsia", *(["mergekit"] if find_spec("mergekit") else [])]
    rows = []
    for method in methods:
        recipe = folder / f"{method}.yml"
        recipe.write_text(json.dumps(recipe_of(method, folder)))
        for way in ways:
            row = alone(way, recipe, folder / way, threads)
            rows.append({"method": method, "way": way, **row})
            print(rows[-1], file=sys.stderr, flush=True)
        if len(ways) > 1 and method not in RANDOM:
            rows[-1] |= differences(*(folder / way for way in ways))
        for way in ways:
            shutil.rmtree(folder / way)
    size = sum(path.stat().st_size for path in (folder / "one").glob("*.safetensors"))
    return {
        "gigabytes_of_a_model": round(size / 1e9, 3),
        "models": len(MODELS),
        "layers": layers,
        "largest_tensor_MB": round(4e-6 * small.get("vocabulary", VOCABULARY) * width(small), 1),
        "threads": threads,
        "limit_GiB": LIMIT / 2**30,
        "rows": rows,
        "versions": versions(ways),
    }


def recipe_of(method: str, folder: Path) -> dict[str, Any]:
    """What both ways are given: JSON, which is YAML."""
    models = [{"model": str(folder / name), "parameters": METHODS[method]} for name in MODELS]
    recipe: dict[str, Any] = {"merge_method": method, "models": models, "dtype": "float32"}
    if method == "slerp":
        return recipe | {"base_model": models[0]["model"], "parameters": {"t": 0.3}}
    return recipe if method == "linear" else recipe | {"base_model": str(folder / "base")}


def alone(way: str, recipe: Path, out: Path, threads: int) -> dict[str, Any]:
    """One merge in a process of its own."""
    words = ["--run", way, "--recipe", str(recipe), "--folder", str(out)]
    root = Path(__file__).resolve().parents[2]
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, __file__, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(way: str, recipe: Path, out: Path) -> dict[str, Any]:
    """Merge, and say what it took; imports are not counted as time."""
    merge = {"intarsia": by_intarsia, "mergekit": by_mergekit}[way](recipe, out)
    if way == "intarsia":
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    watch = AnonymousMemory()
    start, cpu = time.perf_counter(), time.process_time()
    merge()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_MiB": round((_status("VmHWM") or _resource_peak()) / 1024),
        "peak_anonymous_MiB": watch.peak(),
    }


def by_intarsia(recipe: Path, out: Path) -> Any:
    import intarsia as ia

    files = ia.MergekitRecipe.load(recipe)
    return lambda: files.merge(out, progress=False)


def by_mergekit(recipe: Path, out: Path) -> Any:
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    config = MergeConfiguration.model_validate(json.loads(recipe.read_text()))
    options = MergeOptions(copy_tokenizer=False, write_model_card=False, quiet=True)
    return lambda: run_merge(config, str(out), options)


class AnonymousMemory:
    """The most memory that is not a file's, looked at twenty times a second; 0 where unknown."""

    def __init__(self) -> None:
        self.most, self.ended = 0, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.ended.wait(0.05):
            self.most = max(self.most, _status("RssAnon"))

    def peak(self) -> int:
        self.ended.set()
        return round(max(self.most, _status("RssAnon")) / 1024)


def _status(key: str) -> int:
    """KiB that Linux counts for this process, since it began; 0 elsewhere."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def _resource_peak() -> int:
    """The same by getrusage, which counts what the process was forked from, too."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def width(small: dict[str, int]) -> int:
    return small.get("width", WIDTH)


def write_models(folder: Path, gigabytes: float, **small: int) -> int:
    """A base and two models near it, in shards of about a GB; gives the number of layers."""
    sizes = {"width": WIDTH, "hidden": HIDDEN, "heads": HEADS, "vocabulary": VOCABULARY, **small}
    outer, layer = _shapes(sizes, 0), _shapes(sizes, 1)
    rest = sum(map(_count, outer.values()))
    each = sum(map(_count, layer.values())) - rest
    layers = max(1, round((gigabytes * 1e9 / 4 - rest) / each))
    draw = torch.Generator().manual_seed(0)
    tile = torch.randn(TILE + 2**10, generator=draw)
    for place, name in enumerate(("base", *MODELS)):
        _write_model(folder / name, _shapes(sizes, layers), tile, place)
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32",
            "hidden_size": sizes["width"], "intermediate_size": sizes["hidden"],
            "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["heads"],
            "num_hidden_layers": layers, "vocab_size": sizes["vocabulary"],
            "tie_word_embeddings": False,
        }  # fmt: skip
        (folder / name / "config.json").write_text(json.dumps(config))
    return layers


def _shapes(sizes: dict[str, int], layers: int) -> dict[str, tuple[int, ...]]:
    d, h, v = sizes["width"], sizes["hidden"], sizes["vocabulary"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (v, d),
        "model.norm.weight": (d,),
        "lm_head.weight": (v, d),
    }
    for i in range(layers):
        own = {f"self_attn.{k}_proj.weight": (d, d) for k in "qkvo"}
        own |= {"mlp.gate_proj.weight": (h, d), "mlp.up_proj.weight": (h, d)}
        own |= {"mlp.down_proj.weight": (d, h)}
        own |= {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in own.items()}
    return shapes


def _count(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _write_model(
    folder: Path, shapes: dict[str, tuple[int, ...]], tile: torch.Tensor, place: int
) -> None:
    """Tensors of tiled random numbers; a model is the base plus a tenth of another tiling."""
    folder.mkdir()
    shards: list[dict[str, torch.Tensor]] = [{}]
    placed: dict[str, int] = {}
    held = 0
    for index, (name, shape) in enumerate(shapes.items()):
        if held > 1e9:
            _write_shard(folder, len(shards), shards[-1])
            shards[-1], held = {}, 0
            shards.append({})
        tensor = 0.02 * _tiled(tile, shape, index % 1000)
        if place:
            tensor += 0.002 * _tiled(tile, shape, (37 * index + 311 * place) % 1000)
        shards[-1][name], placed[name] = tensor, len(shards)
        held += tensor.nbytes
    _write_shard(folder, len(shards), shards[-1])
    index_file = {"metadata": {}, "weight_map": {n: _shard(i) for n, i in placed.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index_file))


def _tiled(tile: torch.Tensor, shape: tuple[int, ...], start: int) -> torch.Tensor:
    entries = _count(shape)
    own = tile[start : start + TILE]
    return own.repeat(-(-entries // TILE))[:entries].reshape(shape)


def _write_shard(folder: Path, number: int, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / _shard(number), {"format": "pt"})


def _shard(number: int) -> str:
    return f"model-{number:05}.safetensors"


def differences(one: Path, other: Path) -> dict[str, float]:
    """Between two merges: the largest, and what fraction of the entries is not the SAME."""
    ours, theirs = TensorFiles(one).tensors, TensorFiles(other).tensors
    assert ours.keys() == theirs.keys()
    worst, different, entries = 0.0, 0, 0
    for name, tensor in ours.items():
        off = (tensor.read() - theirs[name].read()).abs()
        worst = max(worst, float(off.max()))
        different += int((off > SAME).sum())
        entries += tensor.entries
    return {"largest_difference": worst, "fraction_different": different / entries}


def versions(ways: list[str]) -> dict[str, str]:
    known = {}
    for way in ways:
        try:
            known[way] = version(way)
        except PackageNotFoundError:
            continue
    return known


if __name__ == "__main__":
    main()
