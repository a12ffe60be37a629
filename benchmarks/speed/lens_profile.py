"""Time entropy profiles against a plain forward pass of the same texts.

    python benchmarks/speed/lens_profile.py --device cuda
    python benchmarks/speed/lens_profile.py --texts 8 --batch 8 --repetitions 1

The model is `--model` (a path, or smollm2, see the guide), or with `--random` a network of
SmolLM2-135M's sizes with random weights, which costs the same. A plain pass gives logits of all
positions, as a causal language model does when it is called. A profile of all positions needs the
head for every layer, and the head of SmolLM2 is a fifth of its numbers: counted in products it is
several plain passes, whatever the code does. Ways that need fewer rows are exact where they read.
The ratio to the plain pass in the same precision of the network is printed, median of repetitions,
for a network of float32 and, with `--networks`, of bfloat16.
Results go to docs/results/NAME.json.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.record import RESULTS, made_by, save
from intarsia.lens import LanguageModel, LensParts, open_model, profile
from intarsia.lens.lens_parts import PRECISIONS

WAYS: dict[str, dict[str, Any]] = {
    "all positions": {},
    "all positions, bfloat16 head": {"precision": "bfloat16"},
    "every 8th position": {"stride": 8},
    "every 16th position": {"stride": 16},
    "every 16th position, bfloat16 head": {"stride": 16, "precision": "bfloat16"},
    "last position": {"positions": "last"},
    "last position, bfloat16 head": {"positions": "last", "precision": "bfloat16"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--networks", nargs="*", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="lens_profile_speed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    words = ["--random"] if options.random else ["--model", options.model]
    for key in ("texts", "tokens", "batch", "repetitions", "device", "name"):
        words += [f"--{key}", getattr(options, key)]
    words += ["--networks", *options.networks]
    machine = None if options.device == "cuda" else "CPU"
    model = random_model() if options.random else open_model(options.model)
    model.network.to(options.device)
    result = made_by(__file__, *words, machine=machine) | measure(model, options)
    save(options.out, options.name, result)


def measure(model: LanguageModel, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of every way and the ratio to the plain pass; and what products alone would say."""
    generator = torch.Generator().manual_seed(0)
    parts = LensParts.of(model.network)
    size = parts.vocabulary or 2
    tokens = torch.randint(2, size, (options.texts, options.tokens), generator=generator)
    rows = []
    for kind in options.networks:
        model.network.to(getattr(torch, kind))
        plain = timed(lambda: plain_pass(model.network, tokens, options), options)
        rows.append({"network": kind, "way": "plain forward pass", **plain, "ratio": 1.0})
        print(rows[-1], flush=True)
        for name, settings in WAYS.items():
            own = timed(lambda how=settings: profile(model, tokens, batch=options.batch, **how),
                        options)  # fmt: skip
            ratio = round(own["seconds"] / plain["seconds"], 3)
            counted = products(parts, tokens, settings)
            rows.append({"network": kind, "way": name, **own, "ratio": ratio, "products": counted})
            print(rows[-1], flush=True)
    return {"model": model.name, "texts": options.texts, "tokens": options.tokens, "rows": rows}


def products(parts: LensParts, tokens: Tensor, settings: dict[str, Any]) -> float:
    """Multiplications of a profile over those of a plain pass, attention left out."""
    head = sum(p.numel() for p in parts.head.parameters())
    body = sum(p.numel() for block in parts.blocks for p in block.parameters())
    length = tokens.shape[1]
    read = 1 if settings.get("positions") == "last" else -(-length // settings.get("stride", 1))
    return round((body + len(parts.blocks) * head * read / length) / (body + head), 3)


@torch.no_grad()
def plain_pass(network: nn.Module, tokens: Tensor, options: argparse.Namespace) -> None:
    for part in tokens.split(options.batch):
        network(part.to(options.device))


def timed(work: Callable[[], Any], options: argparse.Namespace) -> dict[str, float]:
    """The median of repetitions after one that is not counted; on a GPU with its largest memory."""
    cuda = options.device == "cuda"
    seconds = []
    for _ in range(options.repetitions + 1):
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        clock = time.perf_counter if cuda else time.process_time
        began = clock()
        work()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(clock() - began)
    result = {"seconds": round(statistics.median(seconds[1:]), 4)}
    if cuda:
        result["GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return result


def random_model() -> LanguageModel:
    """A Llama of SmolLM2-135M's sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LanguageModel(LlamaForCausalLM(config).eval(), None, "random, SmolLM2-135M's sizes")


if __name__ == "__main__":
    main()
