"""The page of a study says what its tables say, what was run, and what is missing."""

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.figure import Figure

from intarsia.cli.study.study_options import StudyChoice
from intarsia.errors import FileError, StudyError
from intarsia.files import digest_of
from intarsia.plots import curve_panels, svg
from intarsia.reports import Report
from intarsia.reports.html.words import duration
from intarsia.reports.study.html_tables import MINUS
from intarsia.reports.study.study_report import BYTES, study_report
from intarsia.studies import (
    STUDIES,
    Cell,
    Findings,
    Measured,
    Paper,
    Spread,
    Store,
    Study,
    StudyContext,
    Table,
    find_study,
    seeds_of,
)
from intarsia.studies.archive import Archive, load_archive, make_archive, save_archive
from intarsia.studies.options import run_command
from intarsia.studies.plans import Plan
from intarsia.studies.tables import Difference

ROOT = Path(__file__).resolve().parents[3]
RUN = {"device": "a device", "kind": "cpu", "date": "2026-01-01", "versions": {"torch": "2"}}
OPTIONS = {"data": ["digits"], "seeds": 2, "objectives": ["me", "xe"], "scale": 1.0, "recipe": {}}
# By objective: what the paper "printed". Ours are 0.9 and 0.3: one met, one not.
PRINTED = {"me": Paper(0.9, 0.01), "xe": Paper(0.5, 0.01)}


def cells(options: Mapping[str, Any], context: StudyContext) -> list[Cell]:
    def bank(data: str, objective: str, seed: int) -> Plan:
        how = {"objective": objective, **options["recipe"]}
        return context.plan(data, "mlp(8)", [("0",)], seed, **how)

    return [
        Cell(
            "glaze",
            {
                "data": data,
                "objective": objective,
                "seed": seed,
                "scale": options["scale"],
                "recipe": options["recipe"],
            },
            {"bank": bank(data, objective, seed)},
        )
        for data in options["data"]
        for objective in options["objectives"]
        for seed in seeds_of(options["seeds"])
    ]


def tables(measured: Sequence[Measured]) -> list[Table]:
    rows = []
    for objective in dict.fromkeys(m.settings["objective"] for m in measured):
        own = [m for m in measured if m.settings["objective"] == objective]
        spread = Spread.of([m.result["accuracy"] for m in own], best=objective == "me")
        paper = PRINTED[objective]
        rows.append(["<digits>", objective, spread, paper, Difference.of(spread, paper)])
    columns = ["data", "objective", "accuracy", "paper's accuracy", "difference"]
    return [Table("Glaze & gloss", columns, rows)]


def figures(measured: Sequence[Measured]) -> dict[str, Figure]:
    curve = {m.settings["seed"]: m.result["accuracy"] for m in measured}
    return {"glaze-digits": curve_panels({"": {"sum": curve}}, title="gloss by seed", x="seed")}


GLAZE = Study(
    name="glaze",
    title="How it shines",
    about="A study for the tests of its report.",
    scales={"paper": OPTIONS, "small": OPTIONS | {"seeds": 1}},
    cells=cells,
    measure=lambda cell, context: {"accuracy": 0.9 if cell.settings["objective"] == "me" else 0.3},
    tables=tables,
    figures=figures,
)


@pytest.fixture(autouse=True)
def glaze(monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setitem(STUDIES, "glaze", GLAZE)
    return GLAZE


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with every cell of the paper's scale, but no bank: nothing is trained here."""
    result = Store(tmp_path / "store")
    fill(result, OPTIONS)
    return result


def fill(store: Store, options: Mapping[str, Any], without: int = 0) -> list[Cell]:
    context = StudyContext(store, "cpu")
    planned = GLAZE.plan(options, context)
    for cell in planned[: len(planned) - without]:
        store.write(cell, GLAZE.measure(cell, context))
    keys = [plan.key for cell in planned for plan in cell.banks.values()]
    events = [
        {**RUN, "event": "banks", "keys": keys, "modules": len(keys), "work": 1, "seconds": 65.0},
        {**RUN, "event": "cell", "key": planned[0].key, "seconds": 4.0},
    ]
    runs = store.path / "runs"
    runs.mkdir(exist_ok=True)
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (runs / f"{planned[0].key}.jsonl").write_text(lines)
    return planned


@pytest.fixture
def archived(store: Store) -> Archive:
    return make_archive(GLAZE, OPTIONS, GLAZE.plan(OPTIONS, StudyContext(store, "cpu")), store)


class Reader(HTMLParser):
    """Texts of elements by tag, all ids, and whatever would be fetched."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self.ids += [result["id"] or ""] if "id" in result else []
        links = [result.get(name) or "" for name in ("src", "href")]
        self.fetched += [link for link in links if link and not link.startswith("#")]
        if tag not in ("meta", "br", "link", "rect", "path"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data


def read(report: Report) -> Reader:
    result = Reader(report.html)
    assert len(result.ids) == len(set(result.ids))
    assert not result.fetched
    return result


def facts(report: Report) -> dict[str, str]:
    pairs = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", report.html)
    return dict(pairs)


def test_an_archive_becomes_a_page_that_says_what_it_has(archived: Archive, tmp_path: Path) -> None:
    save_archive(tmp_path / "glaze.json", archived)
    report = study_report(tmp_path / "glaze.json")
    page = read(report)
    assert page.texts["h1"] == ["How it shines"]
    assert "A study for the tests" in page.texts["header"][0]
    verdict = GLAZE.judge(archived.measured)
    assert all(claim.marked in page.texts["li"] for claim in verdict.claims)
    assert verdict.claims[0].counted == "1 of 2"
    assert f"1 of 2 {verdict.claims[0].short}" in page.texts["li"]
    assert [row.split() for row in page.texts["tr"][1:]] == [
        ["<digits>me0.9000", "(0.0000)0.900", "(0.010)+0.0000"],
        [
            "<digits>xe0.3000",
            "(0.0000)0.500",
            f"(0.010){MINUS}0.2000‡",
            "beyond",
            "two",
            "deviations",
        ],
    ]
    assert page.texts["strong"][-1] == "0.9000 (0.0000)"
    assert page.texts["mark"] == [f"{MINUS}0.2000‡ beyond two deviations"]
    run = facts(report)
    assert (run["cells"], run["seeds"], run["study"]) == ("4", "2", "glaze, paper scale")
    assert (run["training took"], run["cells took"]) == ("1 min 5 s", "4.0 s")
    assert (run["device"], run["when"], run["versions"]) == ("a device", "2026-01-01", "torch 2")
    assert run["modules trained"] == "4"
    assert run["epochs"] == "20"  # of the preset, for the digits
    assert "intarsia study run glaze" in page.texts["code"][0].splitlines()
    assert list(report.figures) == ["glaze-digits"]
    assert 'id="figure-glaze-digits"' in report.html
    assert "Gloss by seed (digits)." in report.html


def test_a_store_half_done_names_what_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    fill(store, OPTIONS | {"seeds": 3}, without=2)
    report = study_report(store.path, "glaze")
    page = read(report)
    assert facts(report)["cells"] == "4 of 6"
    assert facts(report)["seeds"] == "3 (paper scale: 2)"
    assert "digits, xe, seeds 1, 2" in page.texts["li"]
    assert any(text.startswith("2 cells missing") for text in page.texts["p"])
    run = f"intarsia study run glaze --seeds 3 --store {store.path}"
    assert run in page.texts["code"][0].splitlines()


def test_options_that_are_given_are_those_of_the_page(store: Store) -> None:
    report = study_report(store, "glaze", {**OPTIONS, "seeds": 5})
    assert facts(report)["cells"] == "4 of 10"


def test_sets_of_cells_that_were_asked_apart_stay_apart(store: Store) -> None:
    fill(store, OPTIONS | {"scale": 2.0, "seeds": 1})
    report = study_report(store.path)
    page = read(report)
    assert page.texts["h2"][1:] == ["Overview", "How it shines (glaze)", "How it shines (glaze-2)"]
    assert "Measured with seeds: 1; scale: 2.0." in page.texts["p"]
    assert list(report.figures) == ["glaze-digits", "glaze-digits-2"]


def test_cells_of_an_unknown_definition_are_shown_but_not_counted(store: Store) -> None:
    """A recipe that no setting tells of: the store has the cells, today's options do not."""
    for path in store.path.glob("cells/glaze/*.json"):
        cell = json.loads(path.read_text())
        del cell["settings"]["recipe"], cell["digest"]
        cell["key"] = cell["key"][::-1]
        path.write_text(json.dumps({**cell, "digest": digest_of(cell)}))
    report = study_report(store.path)
    assert facts(report)["cells"] == "4"
    assert "How many cells are missing cannot be told" in report.html


def test_a_damaged_cell_is_named_and_missing(store: Store) -> None:
    path = sorted(store.path.glob("cells/glaze/*.json"))[0]
    path.write_text(path.read_text().replace('"accuracy":0.', '"accuracy":1.'))
    report = study_report(store.path)
    assert f"{path.name} is damaged" in report.html
    assert facts(report)["cells"] == "3 of 4"


def test_what_finds_no_room_is_left_out_and_said(
    archived: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {f"glaze-{n}": curve_panels({"": {"sum": {0: 1.0}}}, title="t") for n in (1, 2)}
    drawn = dataclasses.replace(GLAZE, figures=lambda measured: two)
    monkeypatch.setitem(STUDIES, "glaze", drawn)
    assert BYTES < 5_000_000
    monkeypatch.setattr(f"{study_report.__module__}.BYTES", int(1.5 * len(svg(two["glaze-1"]))))
    report = study_report(archived)
    assert "figure-glaze-1" in report.html
    assert "figure-glaze-2" not in report.html
    assert "1 figure found no room on this page" in report.html
    assert list(report.figures) == ["glaze-1", "glaze-2"]


def test_errors_name_what_is_wrong(store: Store, archived: Archive, tmp_path: Path) -> None:
    file = tmp_path / "glaze.json"
    save_archive(file, archived)
    with pytest.raises(StudyError, match="of the study 'glaze', not of 'pairs'"):
        study_report(file, "pairs")
    with pytest.raises(StudyError, match=r"no cell of the study 'pairs'.*it has glaze"):
        study_report(store, "pairs")
    with pytest.raises(StudyError, match="no study 'glace'"):
        study_report(store, "glace")
    for source, study in ((store, None), (archived, "glaze")):
        with pytest.raises(StudyError, match="options are for one study of a store"):
            study_report(source, study, OPTIONS)
    with pytest.raises(StudyError, match="no cell of a known study"):
        study_report(Store(tmp_path / "empty"))
    with pytest.raises(StudyError, match="another version of the study measured them"):
        study_report(dataclasses.replace(archived, measured=[Measured({}, {})]))
    file.write_text(file.read_text().replace("a device", "a better one"))
    with pytest.raises(FileError, match="altered or damaged"):
        study_report(file)


@pytest.mark.parametrize("name", ["single", "pairs"])
def test_the_page_shows_the_verdict_of_the_study(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)  # without data no cell is planned
    archive = load_archive(ROOT / "docs" / "results" / f"study_{name}.json")
    some = [m for m in archive.measured if m.settings["data"] in ("mnist", "yeast")]
    archive = dataclasses.replace(archive, measured=[m for m in some if m.settings["seed"] < 3])
    verdict = find_study(name).judge(Findings(archive.measured, "preset `paper`"))
    report = study_report(archive)
    assert verdict.failed
    shown = " ".join(read(report).texts["main"][0].split())
    for claim in verdict.claims:
        assert claim.text.replace("`", "") in shown.replace("`", "")
        assert claim.short in shown
        assert all(point.replace("`", "") in shown.replace("`", "") for point in claim.details)


def test_the_command_asks_for_the_same_options() -> None:
    for name, given in _asked():
        study = find_study(name)
        for scale in study.scales:
            options = study.options(scale, **given)
            command = shlex.split(run_command(study, options))
            assert command[:4] == ["intarsia", "study", "run", name]
            pairs = list(zip(command[4::2], command[5::2], strict=True))
            sets = [value for key, value in pairs if key == "--set"]
            flags = {key[2:]: value for key, value in pairs if key != "--set"}
            asked = flags.pop("scale", None)
            assert StudyChoice(name, scale=asked, set_=sets, **flags).options() == options


def _asked() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "pairs", {"data": ["mnist"], "seeds": [3], "recipe": {"epochs": 5}, "sizes": [2]}
    yield "complete", {"operators": ["sum"], "imp": [False], "without": {"cnn": []}}
    yield "path", {"rows": 100, "models": ["mlp(8, 4)", "deep"]}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (59.6, "1 min 0 s"), (7384, "2 h 3 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_command_with_single_quotes_is_written_in_double_ones() -> None:
    study = find_study("single")
    recipe = {"pruning": "magnitude(scope='layer')", "select": "last"}
    line = run_command(study, study.options("paper", recipe=recipe))
    assert line.endswith("""--set "recipe={pruning: magnitude(scope='layer'), select: last}\"""")
    assert yaml.safe_load(shlex.split(line)[-1].removeprefix("recipe=")) == recipe
