"""Every number on the page of the demo, compared with the same number measured here."""

import re
from pathlib import Path

import numpy as np
import pytest

import intarsia as ia
from intarsia.data import Data
from intarsia.plots import curve_panels, svg
from intarsia.reports.html.words import nats, percent
from intarsia.reports.modules.cards import effective_weights, picture_of

from ..reading import part, rows, words

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = {"sum": "weights added", "logits": "logits added"}


@pytest.fixture(scope="module")
def html(demo_folder: Path) -> str:
    return (demo_folder / "report.html").read_text()


@pytest.fixture(scope="module")
def bank(demo_folder: Path) -> ia.Bank:
    return ia.Bank.load(demo_folder / "modules")


@pytest.fixture(scope="module")
def data() -> Data:
    return ia.load_data("digits")


def test_what_was_trained(html: str) -> None:
    assert (
        "Training took two rounds of three epochs, after each of which weights were pruned and the "
        "weights left went back to their origin, for a sparsity of 95% in the end; then came three "
        "epochs with these weights."
    ) in words(part(html, "trained"))


def test_tiles(html: str, bank: ia.Bank) -> None:
    density = sum(m.nonzero for m in bank) / sum(m.parameters for m in bank)
    assert f"{percent(density)} of the parameters kept" in words(part(html, "overview"))


def test_cards(html: str, bank: ia.Bank, data: Data) -> None:
    modules = part(html, "modules")
    cards = re.findall(r'<article class="card".*?</article>', modules, re.DOTALL)
    assert len(cards) == 10
    units = []
    for card, module in zip(cards, bank, strict=True):
        score = ia.evaluate(module, data.test)
        text = words(card)
        assert f"{percent(score.accuracy)} right on the test samples of its own class" in text
        assert f"Entropy on others {nats(score.entropy)} of 2.303" in text
        entropy, density = re.findall(r'd="M0 .5H([\d.]+)"', card)
        assert float(entropy) == pytest.approx(100 * score.entropy / score.ceiling, abs=0.01)
        assert float(density) == pytest.approx(100 * module.nonzero / module.parameters, abs=0.01)
        told = re.search(r"Live units (\d+) of 512", text)
        assert told
        units.append(int(told[1]))
        into, out = (t != 0 for n, t in module.state.items() if n.endswith("weight"))
        assert units[-1] <= int((into.any(dim=1) | out.any(dim=0)).sum())
    assert f"{percent(sum(units) / 5120)} of the hidden units still lead" in words(modules)
    result = [effective_weights(module, data.test) for module in bank]
    pictures = np.stack([picture_of(w) for w in result if w is not None])
    against = -pictures[pictures < 0].sum() / np.abs(pictures).sum()
    assert f"Of all that weight {percent(against)} speaks against" in words(modules)


def test_joined(html: str, bank: ia.Bank, data: Data, demo_folder: Path) -> None:
    joined = part(html, "joined")
    score = {o: ia.evaluate(ia.compose(bank, o), data.test) for o in NAMES}
    best, other = sorted(NAMES, key=lambda o: -score[o].accuracy)
    single = [ia.evaluate(module, data.test) for module in bank]
    alone = max(s.confusion.trace() for s in single) / 359
    text = words(joined)
    assert (
        f"ten modules are right on {percent(score[best].accuracy)} of the 359 test samples "
        f"({NAMES[best]}); {percent(score[other].accuracy)} with {NAMES[other]}."
    ) in text
    assert f"is right on {percent(alone)} of all samples" in text
    told = rows(joined)
    for operator, name in NAMES.items():
        (seen,) = [row for row in told if row.startswith(name)]
        assert told[seen] == [pytest.approx(score[operator].accuracy, abs=5e-5)]
    joint = ia.evaluate(ia.Bank.load(demo_folder / "joint")[0], data.test)
    assert told["one network trained on all classes"] == [pytest.approx(joint.accuracy, abs=5e-5)]


def test_one_after_another(html: str, bank: ia.Bank, data: Data) -> None:
    first = percent(ia.evaluate(bank[0], data.test).accuracy)
    ends, last = [], []
    for operator, name in NAMES.items():
        merged = ia.compose(bank, operator)
        ends.append(f"{first} to {percent(ia.evaluate(merged, data.test).accuracy)} with {name}")
        last.append(f"{name} {nats(ia.evaluate(merged - '9', data.test).entropy)}")
    text = words(part(html, "curve"))
    assert f"goes from {ends[0]} and {ends[1]}." in text
    assert f"The last entropy on classes not yet in: {last[0]} and {last[1]} nats." in text


def test_a_curve_has_a_point_for_every_module(two_seeds: Path, data: Data) -> None:
    modules = [ia.Bank.load(two_seeds)[f"{digit}-s1"] for digit in (2, 0, 1)]
    report, title = ia.report(modules, data), "accuracy so far"
    panel, ends = {}, []
    for operator, key in (("sum", "sum"), ("logits", "logits = inlay")):
        wholes = [ia.compose(modules[:count], operator) for count in (1, 2, 3)]
        seen = [ia.evaluate(merged, data.test).accuracy for merged in wholes]
        assert len({*seen}) == 3
        panel[key] = dict(zip((1.0, 2.0, 3.0), seen, strict=True))
        ends.append(f"{percent(seen[0])} to {percent(seen[2])} with {NAMES[operator]}")
    drawn = curve_panels({title: panel}, title=title, x="modules", bounds=(0, 1))
    assert svg(report.figures["curve-accuracy"]) == svg(drawn)
    assert f"goes from {ends[0]} and {ends[1]}." in words(part(report.html, "curve"))


def test_a_class_taken_out(html: str, bank: ia.Bank, data: Data) -> None:
    removed, merged, y = part(html, "removed"), ia.compose(bank, "logits"), data.test.y
    right = merged.predict(data.test.x) == y
    expected = {}
    for place, module in enumerate(bank):
        less, own = merged - module.name, y == place
        still = less.predict(data.test.x) == y
        entropy = ia.evaluate(less, data.test).entropy_per_class[place]
        accuracies = [s.double().mean() for s in (right[own], still[own], right[~own], still[~own])]
        before, after, rest, left = map(float, accuracies)
        expected[module.name] = [before, after, entropy, rest, left]
    told = rows(removed)
    assert list(told) == list(expected)
    for name, numbers in expected.items():
        assert told[name] == pytest.approx(numbers, abs=1e-4)
    before, after, entropy, rest, left = np.mean(list(expected.values()), axis=0)
    text = words(removed)
    assert f"on its class goes from {percent(before)} to {percent(after)}, " in text
    assert f"with {nats(entropy)} of at most 2.303 nats of entropy" in text
    assert f"other classes it goes from {percent(rest)} to {percent(left)}." in text


def test_compatibility_and_the_path(html: str, bank: ia.Bank, data: Data) -> None:
    matrix = ia.compatibility_matrix(bank, data)["interference"]
    one, other = divmod(int(np.nanargmax(matrix)), 10)
    told = f"Over all pairs it is {100 * np.nanmean(matrix):.1f} percentage points; most between "
    told += f"{one} and {other}, {100 * np.nanmax(matrix):.1f}."
    assert told in words(part(html, "compatibility")).replace("-0.0", "0.0")
    way = ia.path(bank[one], bank[other], data, samples=1000)
    numbers = rows(part(html, "path"))
    for name, curve in way.curves.items():
        worst = int(curve.excess.argmax())
        for label, place in ((str(one), 0), ("sum", 10), (str(other), 20), ("worst", worst)):
            straight = curve.loss[0] + way.t[place] * (curve.loss[-1] - curve.loss[0])
            above = 100 * (curve.loss[place] / straight - 1)
            seen = [way.t[place], curve.loss[place], above, curve.accuracy[place]]
            seen.append(curve.entropy[place])
            assert numbers[f"{label}, {name}"] == pytest.approx(seen, abs=6e-4)
    middle = way.curves["test"].accuracy[[0, 10]]
    text = words(part(html, "path"))
    assert f"{percent(middle[0])} of the test samples of both at the start" in text
    assert f"{percent(middle[1])} in the middle" in text
    barriers = [f"{c.barrier:.1f}% on {name} samples" for name, c in way.curves.items()]
    assert f"the highest rise is {barriers[0]} and {barriers[1]}." in text
    assert ("not connected" in text) == (way.barrier > 2)


def test_the_band_is_two_percent(two_seeds: Path, data: Data) -> None:
    bank = ia.Bank.load(two_seeds).seed(0)[:2]
    way = ia.path(*bank, data, samples=1000)
    panel = {n: dict(zip(way.t, c.loss, strict=True)) for n, c in way.curves.items()}
    panel |= {
        f"{name}: straight line + 2%": {
            t: (low, low, low * 1.02) for t, low in ((0.0, curve.loss[0]), (1.0, curve.loss[-1]))
        }
        for name, curve in way.curves.items()
    }
    drawn = curve_panels({"loss": panel}, title="loss", x="from 0-s0 (0) to 1-s0 (1)")
    assert svg(ia.report(bank, data, rows=50).figures["path-loss"]) == svg(drawn)
