"""A hundred modules on a pretrained network's features: what `intarsia demo --features` runs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intarsia.composition import Composition, compose
from intarsia.data import Data, Split, load_data
from intarsia.demos.demo import next_commands, page_of
from intarsia.demos.symbols import OTHERS, SYMBOLS, symbol_pictures
from intarsia.files import plain, write_whole
from intarsia.measure import evaluate
from intarsia.modules import Bank, Module, logits_of
from intarsia.reports import report
from intarsia.training import train

ENCODER = "efficientnet_lite0(96)"
EACH = (30, 10, 16)  # pictures of a symbol to learn from, to test with, and of others
# Chosen on validation pictures.
SETTINGS: dict[str, Any] = {
    "model": "mlp(16, dropout=0)",
    "sparsity": 0.5,
    "learning_rate": 2e-3,
}
WAYS: dict[str, dict[str, Any]] = {
    "modules that never met: each sees its own symbol and public pictures": {
        "visibility": "own",
        "negatives": "public(40)",
    },
    "modules that see all symbols": {},
    "one network trained on all": {
        "model": "mlp(64, dropout=0)",
        "objective": "xe",
        "sparsity": 0.0,
        "rounds": 0,
        "learning_rate": 6e-3,
    },
}
APART, TOGETHER, JOINT = WAYS
FOLDERS = {APART: "apart", TOGETHER: "together", JOINT: "joint"}
REMOVED = "♥"
COMMANDS = (
    "intarsia inspect {folder}/whole.safetensors",
    "intarsia compose {folder}/apart --without '{removed}' -o {folder}/less.safetensors",
    "intarsia export {folder}/whole.safetensors -o {folder}/whole.onnx",
    "intarsia studio {folder}/whole.safetensors",
)
ASKED = 8  # raw pictures that the saved file is asked about,
STEP = 113  # so far from each other, which gives as many symbols


@dataclass(frozen=True)
class FeaturesFindings:
    """What the demo measured on test pictures."""

    classes: int
    test_samples: int
    features: int
    encoder: str
    accuracy: dict[str, float]  # by way
    seconds: dict[str, float]  # by step
    bytes: int  # of a module's file, in the mean
    removed: tuple[float, float]  # accuracy on the removed symbol, with its module and without
    others: tuple[float, float]  # on all others
    same_bits: bool  # of the answers, once it is put back
    asked: list[tuple[str, str]]  # raw pictures given to the saved file: symbol and answer

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self), "findings")


def features_demo(
    out: str | Path = "demo-features",
    *,
    each: tuple[int, int, int] = EACH,
    encoder: Any = ENCODER,
    epochs: int | None = None,
    progress: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> FeaturesFindings:
    """Draw, encode, train, join, take apart, save, and ask the file about raw pictures."""
    out, clock = Path(out), _Clock()
    pictures, data = _data(each, encoder, progress, say, clock)
    settings = {**SETTINGS, **({} if epochs is None else {"epochs": epochs})}
    banks = {}
    for way, own in WAYS.items():
        say(f"training: {way}")
        sets = {"partition": [list(data.catalogue)]} if way == JOINT else {}
        folder = out / FOLDERS[way]
        banks[way] = train(data, out=folder, progress=progress, **{**settings, **own, **sets})
        clock.lap(way)
    say("joining and measuring")
    whole = compose(banks[APART], "logits")
    path = out / "whole.safetensors"
    whole.save(path)
    networks: dict[str, Composition | Module] = {
        APART: whole,
        TOGETHER: compose(banks[TOGETHER], "logits"),
        JOINT: banks[JOINT][0],
    }
    removed, others, same = _remove_and_add(compose(banks[APART], "logits"), banks[APART], data)
    findings = FeaturesFindings(
        classes=data.classes,
        test_samples=len(data.test),
        features=data.shape[0],
        encoder=str(data.encoder),
        accuracy={way: evaluate(one, data.test).accuracy for way, one in networks.items()},
        seconds=clock.laps,
        bytes=_mean_size(out / FOLDERS[APART]),
        removed=removed,
        others=others,
        same_bits=same,
        asked=_ask(path, pictures, encoder),
    )
    clock.lap("joining and measuring")
    write_whole(out / "report.md", _text(findings, out).encode())
    say("writing the report")
    report(out / FOLDERS[APART], data).save(out / "report.html")
    return findings


class _Clock:
    """Seconds between laps, by name."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = round(now - self._last, 1), now


def _data(
    each: tuple[int, int, int],
    encoder: Any,
    progress: bool | None,
    say: Callable[[str], None],
    clock: _Clock,
) -> tuple[Split, Data]:
    """Test pictures as they were drawn, and the features of all."""
    to_learn, to_test, of_others = each
    count = len(SYMBOLS) * (to_learn + to_test) + len(OTHERS) * of_others
    say(f"drawing {count:,} pictures: {len(SYMBOLS)} symbols, and others without a label")
    x, y = symbol_pictures(to_learn, seed=0)
    x_test, y_test = symbol_pictures(to_test, seed=1)
    x_public, _ = symbol_pictures(of_others, seed=2, symbols=OTHERS)
    clock.lap("drawing")
    say(f"computing features by {encoder}, once")
    source = {
        **{"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test},
        "x_public": x_public,
    }
    # What all parties share are the encoder and the public pictures, which the scaling is of.
    data = load_data(
        source, features=encoder, progress=progress, public="x_public", scale_on="public"
    )
    data = replace(data, name="symbols")
    clock.lap("features")
    labels = [data.catalogue.index(symbol) for symbol in y_test.tolist()]
    raw = torch.from_numpy(x_test.transpose(0, 3, 1, 2).copy())
    return Split(raw, torch.tensor(labels)), data


def _remove_and_add(
    merged: Composition, bank: Bank, data: Data
) -> tuple[tuple[float, float], tuple[float, float], bool]:
    """Accuracy on a symbol and on all others, with its module and without; then it is put back."""
    module = next(m for m in bank if m.rewarded == (REMOVED,))
    mine = data.catalogue.index(REMOVED)
    rest = [c for c in range(data.classes) if c != mine]
    before = logits_of(merged, data.test.x)
    scores = []
    for change in (None, merged.remove):
        if change is not None:
            change(module)
        score = evaluate(merged, data.test, rewarded=rest)
        scores.append((float(score.accuracy_per_class[mine]), float(score.accuracy)))
    merged.add(module)
    own, others = zip(*scores, strict=True)
    return own, others, torch.equal(before, logits_of(merged, data.test.x))


def _mean_size(folder: Path) -> int:
    sizes = [path.stat().st_size for path in folder.glob("*.safetensors")]
    return round(float(np.mean(sizes)))


def _ask(path: Path, pictures: Split, encoder: Any) -> list[tuple[str, str]]:
    """What the file answers to raw pictures: nothing but it and the encoder is used."""
    loaded = Composition.load(path, encoder=None if isinstance(encoder, str) else encoder)
    rows = torch.arange(ASKED) * STEP % len(pictures)
    answers = loaded.predict(pictures.x[rows]).tolist()
    names = loaded.catalogue
    truth = pictures.y[rows].tolist()
    return [(names[a], names[b]) for a, b in zip(truth, answers, strict=True)]


def _text(findings: FeaturesFindings, out: Path) -> str:
    right = sum(a == b for a, b in findings.asked)
    lines = [
        f"# {findings.classes} modules on features, joined",
        "",
        f"All numbers are of {findings.test_samples:,} test pictures that were drawn for this "
        f"demo, seed 0. Features: {findings.encoder}, {findings.features} numbers a picture. "
        "Modules that never met share the encoder and unlabelled pictures of other symbols, and "
        "nothing else.",
        "",
        "| | accuracy | training, s |",
        "|---|---|---|",
        *(
            f"| {way} | {accuracy:.3f} | {findings.seconds[way]:.1f} |"
            for way, accuracy in findings.accuracy.items()
        ),
        "",
        f"A module's file has {findings.bytes:,} bytes in the mean; modules are joined by adding "
        "their logits, and nothing is trained after that.",
        "",
        f"## {REMOVED} taken out and put back",
        "",
        f"Accuracy on {REMOVED} is {findings.removed[0]:.3f} with its module and "
        f"{findings.removed[1]:.3f} without; on all others {findings.others[0]:.3f} and "
        f"{findings.others[1]:.3f}. Put back, the logits are "
        + ("bit for bit what they were." if findings.same_bits else "NOT what they were."),
        "",
        "## Raw pictures in, symbols out",
        "",
        f"The saved file answered {right} of {len(findings.asked)} raw pictures right: "
        + ", ".join(f"{a} as {b}" for a, b in findings.asked)
        + ".",
    ]
    return page_of(lines, features_commands(out))


def features_commands(out: Path) -> list[str]:
    """Commands that go on with what the demo wrote into its folder."""
    return next_commands(out, COMMANDS, REMOVED)
