"""Family and size from entropy profiles: small transformers that we train, whole seeds held out.

    python benchmarks/experiments/lens_family.py --device cuda
    python benchmarks/experiments/lens_family.py --device cpu --steps 20 --depths 2 3 --samples 8 \\
        --width 32 --batch 4 --length 32 --kinds code --name lens_family_small

Three forms (gpt2: LayerNorm and learned positions; llama; llama without positions) in several
depths and seeds read the same bytes for the same steps. Each then writes samples from an empty
line, and its profile at the last position is interpolated to 16 points, so that depth itself is
not told. Nearest neighbours learn from all seeds but one and are tested on that one. Beside them:
the last layer alone, the log-probability, and what needs no profile: the loss on held-out bytes
and the number of layers. The texts are `--kinds` of the study `lens`: code and manual come with
Python, novel and speech from the folder `texts` of INTARSIA_DATA.
Results go to docs/results/NAME.json.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.record import RESULTS, made_by, save, spread
from intarsia.files import stream
from intarsia.lens import LlamaNetwork, LlamaShape, Profile, profile_generated
from intarsia.studies.lens.text_kinds import KINDS

FORMS = ("gpt2", "llama", "llama without positions")
POINTS, BYTES, HEADS, START = 16, 256, 4, 10  # texts begin behind the end of a line
WRITTEN, TEMPERATURE, NEIGHBOURS = 32, 0.7, 29
LARGEST = 30_000_000  # bytes of text
PARTS = ("form", "depth")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depths", nargs="*", type=int, default=[4, 6, 8])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--kinds", nargs="*", default=["code", "novel", "speech"])
    parser.add_argument("--workers", type=int, default=1, help="processes that train networks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="lens_family")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    words = [word for key in ("depths", "seeds", "width", "steps", "batch", "length", "samples",
                              "kinds", "workers", "device", "name")
             for word in (f"--{key}", *np.atleast_1d(getattr(options, key)).tolist())]  # fmt: skip
    machine = None if options.device == "cuda" else "CPU"
    result = made_by(__file__, *words, machine=machine) | measure(options)
    save(options.out, options.name, result)
    for part in PARTS:
        for name, score in result["scores"][part].items():
            print(f"{part:8} {name:24} {score['accuracy']['mean']:.3f} {score['f1']['mean']:.3f}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Train all networks, then tell their forms and depths apart."""
    wanted = [(seed, form, depth) for seed in range(options.seeds) for form in FORMS
              for depth in options.depths]  # fmt: skip
    share = partial(several, options=options)
    parts = [wanted[n :: options.workers] for n in range(options.workers)]
    if options.workers == 1:
        done = share(wanted)
    else:
        with get_context("spawn").Pool(options.workers) as pool:
            done = [own for part in pool.map(share, parts, chunksize=1) for own in part]
    made = {(row["seed"], row["form"], row["depth"]): (row, found) for row, found in done}
    rows, profiles = zip(*(made[key] for key in wanted), strict=True)
    means = [[round(float(v), 4) for v in found.mean.mean(0)] for found in profiles]
    return {
        "networks": [{**row, "profile": own} for row, own in zip(rows, means, strict=True)],
        "bytes": len(read_bytes(options.kinds, "cpu")[0]),
        "chance": {"form": 1 / len(FORMS), "depth": 1 / len(options.depths)},
        "scores": {part: scores_of(part, rows, profiles) for part in PARTS},
        "plane": {"points": points_of(profiles), "samples": len(profiles[0])},
        "neighbours": NEIGHBOURS,
        "points": POINTS,
    }


def several(
    wanted: Sequence[tuple[int, str, int]], options: argparse.Namespace
) -> list[tuple[dict[str, Any], Profile]]:
    """Networks trained one after another, each with profiles of what it writes."""
    if options.workers > 1:
        torch.set_num_threads(1)
    train, held = read_bytes(options.kinds, options.device)
    result = []
    for seed, form, depth in wanted:
        began = time.perf_counter()
        network = trained(form, depth, train, seed, options)
        loss = loss_of(network, held, options)
        found, _ = profile_generated(
            network, [[START]] * options.samples, WRITTEN, temperature=TEMPERATURE,
            seed=stream(form, depth, seed) % 2**31,
        )  # fmt: skip
        seconds = round(time.perf_counter() - began, 2)
        row = {"form": form, "depth": depth, "seed": seed, "loss": round(loss, 4),
               "seconds": seconds}  # fmt: skip
        print(row, flush=True)
        result.append((row, found))
    return result


def points_of(profiles: Sequence[Profile]) -> dict[str, list[list[float]]]:
    """Interpolated profiles of all samples in a plane: principal components, and t-SNE."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    rows = np.concatenate([found.interpolated(POINTS).features() for found in profiles])
    near = min(30.0, (len(rows) - 1) / 3)
    planes = {
        "principal components": PCA(2, random_state=0),
        "t-SNE": TSNE(2, perplexity=near, init="pca", random_state=0),
    }
    return {name: own.fit_transform(rows).round(3).tolist() for name, own in planes.items()}


def read_bytes(kinds: Sequence[str], device: str) -> tuple[Tensor, Tensor]:
    """Training bytes and held-out ones, every tenth source."""
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for kind in kinds:
        for place, (_, text) in enumerate(sorted(KINDS[kind]())):
            parts[place % 10 == 9].append(text.encode("utf-8", "replace") + b"\n")
    train, held = (torch.frombuffer(bytearray(b"".join(own)[:LARGEST]), dtype=torch.uint8)
                   for own in parts)  # fmt: skip
    return train.to(device), held.to(device)


def made(form: str, depth: int, width: int, context: int) -> nn.Module:
    """A new network of a form."""
    if form == "gpt2":
        return Learned(depth, width, context)
    hidden = 8 * width // 3
    network = LlamaNetwork(LlamaShape(width, hidden, depth, HEADS, HEADS, BYTES, context))
    if form != "llama":  # a rotation by nothing
        network.get_buffer("cosines").fill_(1)
        network.get_buffer("sines").fill_(0)
    for name, parameter in network.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif "norm" in name:
            nn.init.ones_(parameter)
    return network


class Learned(nn.Module):
    """GPT-2's form: LayerNorm before attention and MLP, learned positions, GELU, a tied head."""

    is_causal_lens = True

    def __init__(self, depth: int, width: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(LearnedBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, BYTES, bias=False)
        self.head.weight = self.embedding.weight
        for own in (self.embedding, self.positions):
            nn.init.normal_(own.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        answer: Tensor = self.head(self.norm(x))
        return answer


class LearnedBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.asked(self.first(x)).view(n, length, 3, HEADS, width // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.joined(seen.transpose(1, 2).reshape(n, length, width))
        answer: Tensor = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return answer


def trained(
    form: str, depth: int, text: Tensor, seed: int, options: argparse.Namespace
) -> nn.Module:
    """AdamW with a cosine; the windows of a seed are the same for every form and depth."""
    torch.manual_seed(stream("start", seed) % 2**31)
    context = max(options.length, WRITTEN + 1)
    network = made(form, depth, options.width, context).to(options.device)
    generator = torch.Generator().manual_seed(seed)
    how = {"fused": True} if options.device == "cuda" else {}
    optimiser = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=0.01, **how)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, options.steps + 1)
    offsets = torch.arange(options.length + 1, device=options.device)
    for _ in range(options.steps):
        high = len(text) - options.length - 1
        starts = torch.randint(high, (options.batch, 1), generator=generator)
        rows = text[starts.to(options.device) + offsets].long()
        optimiser.zero_grad(set_to_none=True)
        _loss(network, rows, options.device).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return network.eval()


@torch.no_grad()
def loss_of(network: nn.Module, text: Tensor, options: argparse.Namespace) -> float:
    """In nats a byte, on the same held-out windows for all."""
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(text) - options.length - 1, (256, 1), generator=generator)
    offsets = torch.arange(options.length + 1, device=options.device)
    rows = text[starts.to(options.device) + offsets].long()
    parts = [float(_loss(network, own, options.device)) for own in rows.split(64)]
    return float(np.mean(parts))


def _loss(network: nn.Module, rows: Tensor, device: str) -> Tensor:
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = network(rows[:, :-1])
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def scores_of(
    part: str, rows: Sequence[dict[str, Any]], profiles: Sequence[Profile]
) -> dict[str, Any]:
    """Accuracy and macro F1 by features: mean and standard deviation over the held-out seed."""
    from sklearn.metrics import f1_score
    from sklearn.neighbors import KNeighborsClassifier

    count = len(profiles[0])
    labels = np.repeat([str(row[part]) for row in rows], count)
    seeds = np.repeat([row["seed"] for row in rows], count)
    result = {}
    for name, values in features_of(rows, profiles).items():
        accuracies, f1 = [], []
        for seed in np.unique(seeds):
            train = seeds != seed
            k = min(NEIGHBOURS, int(train.sum()) // 4)
            fitted = KNeighborsClassifier(k).fit(values[train], labels[train])
            said = fitted.predict(values[~train])
            accuracies.append(float((said == labels[~train]).mean()))
            f1.append(float(f1_score(labels[~train], said, average="macro")))
        result[name] = {"accuracy": spread(accuracies), "f1": spread(f1)}
    return result


def features_of(
    rows: Sequence[dict[str, Any]], profiles: Sequence[Profile]
) -> dict[str, np.ndarray]:
    """Of every sample; what is of a network is the same for all of its samples."""
    count = len(profiles[0])
    evenly = [found.interpolated(POINTS).features() for found in profiles]
    numbers = {key: np.repeat([[float(row[key])] for row in rows], count, 0)
               for key in ("loss", "depth")}  # fmt: skip
    return {
        "profile": np.concatenate(evenly),
        "last layer": np.concatenate([own[:, -1:] for own in evenly]),
        "first layer": np.concatenate([own[:, :1] for own in evenly]),
        "log-probability": np.concatenate([p.log_probability[:, None] for p in profiles]),
        "held-out loss": numbers["loss"],
        "number of layers": numbers["depth"],
    }


if __name__ == "__main__":
    main()
