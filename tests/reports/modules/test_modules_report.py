"""Reports of modules: whole pages whose numbers are those of the files, the same each time."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intarsia as ia
from intarsia.errors import DataError, StudyError
from intarsia.reports import Section
from intarsia.reports.html.words import nats, percent

from ..reading import part, rows

pytestmark = pytest.mark.usefixtures("one_thread")

Read = Callable[[str], Any]
KINDS = ("accuracy", "entropy")
ALL = [
    *("overview", "trained", "modules", "joined", "curve", "removed"),
    *("compatibility", "path", "lens", "flow", "reproduce"),
]


def keys(html: str) -> list[str]:
    return re.findall(r'<section id="([\w-]+)"', html)


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_the_demos_page(demo_folder: Path, read_page: Read) -> None:
    html = (demo_folder / "report.html").read_text()
    page = read_page(html)
    assert page.problems == []
    assert keys(html) == ALL
    assert len(html) < 600_000
    assert page.headings[0] == (1, "Ten modules trained on digits")
    cards = [words for level, words in page.headings if level == 3]
    assert cards == [f"Module {digit}" for digit in range(10)]
    assert sum(tag == "img" for tag, _ in page.tags) == 11  # weights of each, and the scale
    assert "one network trained on all classes" in html


def test_its_numbers_are_those_of_the_files(demo_folder: Path) -> None:
    html = (demo_folder / "report.html").read_text()
    words, test = text(html), ia.load_data("digits").test
    bank = ia.Bank.load(demo_folder / "modules")
    scores = [ia.evaluate(module, test) for module in bank]
    accuracy = sum(score.accuracy for score in scores) / 10
    entropy = sum(score.entropy for score in scores) / 10
    assert f"right on {percent(accuracy)} of their own test samples" in words
    assert f"keep {nats(entropy)} of at most 2.303 nats" in words
    for operator, name in (("sum", "weights added"), ("logits", "logits added")):
        score = ia.evaluate(ia.compose(bank, operator), test)
        assert f"{percent(score.accuracy)} right when joined: {name}" in words
    for module, score in zip(bank, scores, strict=True):
        assert f"{nats(score.entropy)} of 2.303" in words
        assert f"{module.nonzero:,} of {module.parameters:,}" in words


def test_the_same_files_give_the_same_page(demo_folder: Path) -> None:
    report = ia.report(demo_folder)
    assert report.html == (demo_folder / "report.html").read_text()
    assert set(report.figures) >= {
        *("answers", "weights", "confusion-alone", "confusion-sum", "confusion-logits"),
        *(
            "curve-accuracy",
            "curve-entropy",
            "path-loss",
            "path-accuracy",
            "compatibility-interference",
        ),
    }
    shown = re.findall(r'<figure id="figure-([\w-]+)"', report.html)
    assert sorted(shown) == sorted(set(report.figures) - {"weights"})  # those are in the cards


def test_one_module(demo_folder: Path, read_page: Read) -> None:
    report = ia.report(demo_folder / "modules" / "3.safetensors")
    assert keys(report.html) == ["overview", "trained", "modules", "lens", "flow", "reproduce"]
    page = read_page(report.html)
    assert page.problems == []
    assert page.headings[0] == (1, "A module for 3")


def test_a_network_of_all_classes_has_no_entropy_to_tell(
    demo_folder: Path, read_page: Read
) -> None:
    report = ia.report(demo_folder / "joint")
    assert read_page(report.html).problems == []
    assert "nats" not in text(report.html)
    assert "Entropy on others" not in report.html


def test_modules_that_cannot_be_joined_say_why(demo_folder: Path) -> None:
    one, other = ia.Bank.load(demo_folder / "modules")[:2]
    warm = ia.Module(**{**vars_of(other), "temperature": 2.0})
    report = ia.report([one, warm], "digits")
    apart = ["overview", "trained", "modules", "joined", "lens", "flow", "reproduce"]
    assert keys(report.html) == apart
    assert "its temperature is 2.0, not 5.0" in text(report.html)


def test_a_composition_and_a_section_of_ones_own(demo_folder: Path, read_page: Read) -> None:
    bank = ia.Bank.load(demo_folder / "modules")
    probe = Section("probe", "A fresh head", "<p>recovers all of it</p>")
    report = ia.report(ia.compose(bank[:3], "inlay"), title="Three <digits>", sections=[probe])
    assert keys(report.html) == [*ALL[:-1], "probe", "reproduce"]
    page = read_page(report.html)
    assert page.problems == []
    assert page.headings[0] == (1, "Three <digits>")
    inlay = ia.evaluate(ia.compose(bank[:3], "inlay"), ia.load_data("digits").test)
    told = f"{percent(inlay.accuracy)} of {inlay.confusion[:3].sum()} test samples of three classes"
    assert f"Side by side (inlay): {told} right" in report.html
    assert "intarsia compose modules/ --operator inlay" in report.html


def test_without_its_data_a_page_has_what_the_files_say(
    demo_folder: Path, read_page: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise DataError("digits <cannot> be fetched")

    monkeypatch.setattr("intarsia.reports.modules.report_input.data_for", gone)
    report = ia.report(demo_folder / "modules")
    assert keys(report.html) == ["overview", "trained", "modules", "reproduce"]
    assert read_page(report.html).problems == []
    assert "digits &lt;cannot&gt; be fetched" in report.html
    assert "of their own validation samples" in report.html
    with pytest.raises(DataError):  # data that are named must be there
        ia.report(demo_folder / "modules", "digits")


def test_many_seeds_have_cards_of_the_first_and_a_table(demo_folder: Path, read_page: Read) -> None:
    first = ia.Bank.load(demo_folder / "modules")[:2]
    data = ia.load_data("digits")
    more = ia.train(
        data,
        preset="paper",
        model="mlp(512)",
        epochs=1,
        rounds=0,
        partition=[["0"], ["1"]],
        seeds=[4],
        progress=False,
    )
    renamed = [ia.Module(**{**vars_of(m), "name": f"{m.name}-s0"}) for m in first]
    others = [ia.Module(**{**vars_of(m), "name": f"{m.name}-s4"}) for m in more]
    report = ia.report(ia.Bank([*renamed, *others]), data, rows=100)
    page = read_page(report.html)
    assert page.problems == []
    cards = [words for level, words in page.headings if level == 3]
    assert cards == ["Module 0-s0", "Module 1-s0"]  # as files and notes call them
    assert "Two more modules, in a table" in report.html
    assert re.findall(r'<th scope="row">(\d-s4)', report.html) == ["0-s4", "1-s4"]


def test_numbers_of_several_seeds_are_means_with_their_spread(two_seeds: Path) -> None:
    bank = ia.Bank.load(two_seeds)
    bank.report["notes"] = ["0-s0: kept the origin"]
    html = ia.report(bank).html
    words, test = text(html), ia.load_data("digits").test
    told = {}
    for operator, name in (("sum", "weights added"), ("logits", "logits added")):
        scores = [ia.evaluate(ia.compose(bank.seed(s), operator), test) for s in (0, 1)]
        accuracy, entropy = (np.array([getattr(s, k) for s in scores]) for k in KINDS)
        told[name] = f"{100 * accuracy.mean():.1f}% ± {100 * accuracy.std(ddof=1):.1f}"
        assert f"{told[name]} right when joined: {name}, of two seeds" in words
        ours = [f"{v.mean():.4f} ({v.std(ddof=1):.4f})" for v in (accuracy, entropy)]
        assert f"{ours[0]} {ours[1]}" in words
        first = f"{name.capitalize()}, seed 0: {percent(accuracy[0])} of 107 test samples"
        assert first in words
    lead = words[words.index("Joined without training, those of one seed") :][:100]
    assert any(f"are right on {number} (n = 2) of 107" in lead for number in told.values())
    for key in ("overview", "curve", "removed", "compatibility", "path"):
        assert "This is seed 0, one of two." in text(part(html, key))
    assert "Module 0-s0" in words
    assert "0-s0: kept the origin" in words
    assert "1.000 between any two" in words  # the unit overlap, the same for every pair


def test_entropy_of_a_class_taken_out_is_that_of_its_samples(two_seeds: Path) -> None:
    bank, data = ia.Bank.load(two_seeds).seed(0), ia.load_data("digits")
    numbers = rows(part(ia.report(bank).html, "removed"))
    for place, module in enumerate(bank):
        less = ia.evaluate(ia.compose(bank, "logits") - module.name, data.test)
        own = less.entropy_per_class[place]
        assert numbers[module.name][2] == pytest.approx(own, abs=1e-4)
        assert abs(less.entropy - own) > 1e-4  # that is of all classes that are not rewarded


def test_a_module_of_two_classes_taken_out(two_seeds: Path) -> None:
    one, other, third = ia.Bank.load(two_seeds).seed(0)
    both = ia.Module(**{**vars_of(one), "rewarded": ("0", "3"), "name": "both"})
    data = ia.load_data("digits")
    numbers = rows(part(ia.report([both, other, third], data).html, "removed"))
    own = data.test.select([0, 3])
    less = ia.evaluate(ia.compose([other, third], "logits"), own)
    assert numbers["both"][2] == pytest.approx(less.entropy, abs=1e-4)
    merged = ia.evaluate(ia.compose([both, other, third], "logits"), own)
    assert numbers["both"][0] == pytest.approx(merged.accuracy, abs=1e-4)


def test_the_picture_is_told_by_what_was_measured(two_seeds: Path) -> None:
    sure = [
        ia.Module(**{**vars_of(m), "temperature": 1e-3}) for m in ia.Bank.load(two_seeds).seed(0)
    ]
    data = ia.load_data("digits")
    scores = [ia.evaluate(module, data.test) for module in sure]
    entropy = sum(score.entropy for score in scores) / 3
    assert entropy < 0.5
    html = ia.report(sure, data).html
    told = f"on average right on {percent(sum(s.accuracy for s in scores) / 3)} of its own samples"
    told += f", with {nats(entropy)} of at most 2.303 nats on all others"
    assert html.count(told) == 3  # in the caption, and for those who do not see the picture
    assert "evenly" not in html
    assert "nearly even" not in html


def test_no_picture_is_told_of_where_there_is_none(
    two_seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("intarsia.reports.modules.overview.TILES_UP_TO", 2)
    html = ia.report(two_seeds, rows=50).html
    assert "figure-answers" not in html
    assert "The picture shows" not in html


def test_single_networks_of_several_seeds_are_not_joined(demo_folder: Path) -> None:
    (joint,) = ia.Bank.load(demo_folder / "joint")
    learned = {**joint.provenance, "seed": 9}
    again = ia.Module(**{**vars_of(joint), "name": "again", "provenance": learned})
    assert "Joined" not in text(ia.report(ia.Bank([joint, again])).html)


def test_names_are_escaped_everywhere(demo_folder: Path, read_page: Read) -> None:
    nasty = '"><script>alert(1)</script>'
    bank = ia.Bank.load(demo_folder / "modules")[:2]
    strange = [
        ia.Module(**{**vars_of(m), "name": f"{nasty}{m.name}", "provenance": {"seed": nasty}})
        for m in bank
    ]
    report = ia.report(strange, ia.load_data("digits"), rows=50)
    assert read_page(report.html).problems == []
    assert report.html.count("<script>") == 1  # the page's own


def test_a_study_is_asked_of_what_has_studies(demo_folder: Path) -> None:
    with pytest.raises(StudyError, match="no study 'pairs' to show"):
        ia.report(demo_folder, study="pairs")


def vars_of(module: ia.Module) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__dataclass_fields__}
