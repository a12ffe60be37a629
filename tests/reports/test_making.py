"""Reports of modules: whole pages whose numbers are those of the files, the same each time."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.errors import DataError, StudyError
from intarsia.reports import Section
from intarsia.reports.words import nats, percent

pytestmark = pytest.mark.usefixtures("one_thread")

Read = Callable[[str], Any]
ALL = ["glance", "trained", "modules", "joined", "curve", "removed", "fits", "path", "again"]


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
        *("curve-accuracy", "curve-entropy", "path-loss", "path-accuracy", "fits-interference"),
    }
    shown = re.findall(r'<figure id="figure-([\w-]+)"', report.html)
    assert sorted(shown) == sorted(set(report.figures) - {"weights"})  # those are in the cards


def test_one_module(demo_folder: Path, read_page: Read) -> None:
    report = ia.report(demo_folder / "modules" / "3.safetensors")
    assert keys(report.html) == ["glance", "trained", "modules", "again"]
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
    assert keys(report.html) == ["glance", "trained", "modules", "joined", "again"]
    assert "its temperature is 2.0, not 5.0" in text(report.html)


def test_a_composition_and_a_section_of_ones_own(demo_folder: Path, read_page: Read) -> None:
    bank = ia.Bank.load(demo_folder / "modules")
    probe = Section("probe", "A fresh head", "<p>recovers all of it</p>")
    report = ia.report(ia.compose(bank[:3], "inlay"), title="Three <digits>", sections=[probe])
    assert keys(report.html) == [*ALL[:-1], "probe", "again"]
    page = read_page(report.html)
    assert page.problems == []
    assert page.headings[0] == (1, "Three <digits>")
    inlay = ia.evaluate(ia.compose(bank[:3], "inlay"), ia.load_data("digits").test)
    told = f"{percent(inlay.accuracy)} of {inlay.confusion[:3].sum()} test samples of three classes"
    assert f"Laid side by side (inlay): {told} right" in report.html
    assert "intarsia compose modules/ --operator inlay" in report.html


def test_without_its_data_a_page_has_what_the_files_say(
    demo_folder: Path, read_page: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: Any) -> None:
        raise DataError("digits <cannot> be fetched")

    monkeypatch.setattr("intarsia.reports.subject.data_for", gone)
    report = ia.report(demo_folder / "modules")
    assert keys(report.html) == ["glance", "trained", "modules", "again"]
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
    assert [words for level, words in page.headings if level == 3] == ["Module 0", "Module 1"]
    assert "Two more modules, in a table" in report.html
    assert re.findall(r'<th scope="row">(\d-s4)', report.html) == ["0-s4", "1-s4"]


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
