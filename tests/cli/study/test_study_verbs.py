"""`intarsia study`: run, stop, go on, look, show and archive a study of the user's own."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import CommandLine

from intarsia.studies import STUDIES
from intarsia.studies.archive import Archive, load_archive, save_archive
from intarsia.studies.selection import load_module

pytestmark = pytest.mark.usefixtures("one_thread")

CLI = CommandLine("study")
call, answer, refusal = CLI.call, CLI.answer, CLI.refusal
MODULE = "own_study_of_the_tests"
OURS = [name for name, study in STUDIES.items() if study.cells.__module__.startswith("intarsia.")]
SOURCE = '''
"""Two modules of the digits a seed, and cells that need no module."""
import time
import intarsia as ia
from intarsia.plots import curve_panels
from intarsia.studies import Cell, Spread, Study, Table, register, seeds_of

FORM = {"data": ["digits"], "models": ["mlp(8)"], "seeds": 2, "powers": [1, 2], "rate": 0.5,
        "slow": 0, "recipe": {"epochs": 1, "sparsity": 0.5, "rounds": 1}}


def cells(options, context):
    planned = []
    for seed in seeds_of(options["seeds"]):
        plan = context.plan(options["data"][0], options["models"][0], [("0",), ("1",)], seed,
                          **options["recipe"])
        for power in options["powers"]:
            settings = {"power": power, "seed": seed, "rate": options["rate"]}
            planned.append(Cell("own", settings | {"slow": options["slow"]}, {"modules": plan}))
    return planned


def measure(cell, context):
    time.sleep(cell.settings["slow"])
    entropies = [ia.evaluate(m, context.data("digits").test).entropy
                 for m in context.bank(cell.banks["modules"])]
    return {"value": [e ** cell.settings["power"] for e in entropies]}


def tables(done):
    rows = [[m.settings["power"], m.settings["seed"], Spread.of(m.result["value"])] for m in done]
    return [Table("entropies", ["power", "seed", "entropy"], rows),
            Table("count", ["cells " * 30], [[len(done)]])]


def figures(done):
    curves = {str(m.settings["seed"]): {1: 1.0, 2: m.result["value"][0]} for m in done}
    drawn = curve_panels({"all": curves}, title="curves")
    return {"curves": drawn, "again": drawn} if len(done) > 2 else {"curves": drawn}


register(Study("own", "A study of the tests", "Is it run?", {"small": FORM},
               cells, measure, tables, figures))
'''


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of the study, known while these tests run."""
    path = tmp_path_factory.mktemp("own") / f"{MODULE}.py"
    path.write_text(SOURCE)
    load_module(str(path))
    yield path
    STUDIES.pop("own", None)
    sys.modules.pop(MODULE, None)
    sys.path.remove(str(path.parent))


@pytest.fixture(scope="module")
def finished(module: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store") / "finished"
    run = call("run", "own", "--module", module, "--store", store, "--device", "cpu")
    assert "cell 4 of 4: own power=2, seed=1" in run.stderr
    assert "entropies" in run.stdout
    assert "4 cells, " in run.stdout
    return store


@pytest.fixture
def store(finished: Path, tmp_path: Path) -> Path:
    """A copy, to be harmed."""
    return Path(shutil.copytree(finished, tmp_path / "store"))


def cell_files(store: Path) -> list[Path]:
    return sorted((store / "cells" / "own").glob("*.json"))


def test_list_names_the_studies_with_scales_and_options() -> None:
    result = {study["name"]: study for study in answer("list")["studies"]}
    assert set(OURS) <= set(result)
    assert all({"paper", "small"} <= set(result[name]["scales"]) for name in OURS)
    assert all(result[name]["title"] and result[name]["about"] for name in OURS)
    shown = call("list").stdout
    assert all(name in shown for name in OURS)


def test_list_of_one_shows_its_options(module: Path) -> None:
    shown = call("list", "own", "--module", module).stdout
    assert "A study of the tests" in shown
    for words in ("option", "small", "powers", "1, 2", "epochs 1, sparsity 0.5, rounds 1"):
        assert words in shown


def test_dry_run_counts_and_writes_nothing(finished: Path, tmp_path: Path) -> None:
    empty = tmp_path / "none"
    result = answer("run", "own", "--store", empty, "--dry-run", "--device", "cpu")
    assert [result[k] for k in ("cells", "missing", "modules")] == [4, 4, 4]
    assert result["minutes"] > 0
    assert not empty.exists()
    more = call("run", "own", "--store", finished, "--seeds", "0,1,7", "--dry-run").stdout
    assert more.startswith("cells: 6, missing: 2\nmodules to train: 2\ntraining: under a minute")
    done = call("run", "own", "--store", finished, "--dry-run").stdout
    assert "training: none" in done
    assert done.splitlines()[-1] == "training: none"  # which nothing has to estimate


def test_a_finished_study_is_shown_at_once(finished: Path) -> None:
    before = {path: path.read_bytes() for path in cell_files(finished)}
    run = answer("run", "own", "--store", finished, "--device", "cpu")
    assert run["cells"] == 4
    assert run["options"]["powers"] == [1, 2]
    assert [table["title"] for table in run["tables"]] == ["entropies", "count"]
    assert {path: path.read_bytes() for path in cell_files(finished)} == before


def test_status_tells_finished_missing_and_damaged(store: Path) -> None:
    gone, harmed, *_ = cell_files(store)
    gone.unlink()
    harmed.write_text(harmed.read_text().replace("value", "valve"))
    result = answer("status", "own", "--store", store, "--seeds", 3)
    assert (result["cells"], result["finished"]) == (6, 2)
    assert list(result["damaged"]) == [harmed.stem]
    assert {cell["key"] for cell in result["missing"]} >= {gone.stem}
    assert len(result["missing"]) == 3
    assert result["banks"] == {"needed": 3, "trained": 2}
    shown = call("status", "own", "--store", store, "--seeds", 3).stdout
    assert "missing: power 1, seed" in shown
    assert harmed.name in shown
    assert "2 of 3 are trained" in shown
    assert "other settings" not in shown


def test_status_groups_many_missing_cells(finished: Path) -> None:
    many = call("status", "own", "--store", finished, "--seeds", 20).stdout
    assert many.splitlines()[-2:] == ["missing: power 1: 18 cells", "missing: power 2: 18 cells"]
    powers = ",".join(map(str, range(1, 16)))
    more = call("status", "own", "--store", finished, "--seeds", 3, "--set", f"powers={powers}")
    lines = more.stdout.splitlines()
    assert lines[-13:-11] == ["missing: power 1, seed 2", "missing: power 2, seed 2"]
    assert lines[-11] == "missing: power 3: 3 cells"
    assert lines[-1] == "missing: and 3 more such sets"  # --json names every cell


def test_status_counts_what_else_lies_in_the_store(finished: Path) -> None:
    words = ["status", "own", "--store", finished, "--set", "rate=0.1"]
    assert answer(*words)["others"] == 4
    shown = call(*words).stdout
    assert "also in this store: 4 cells of other settings or definitions" in shown
    assert answer("status", "own", "--store", finished)["others"] == 0


def test_values_that_give_no_cell_are_named(tmp_path: Path) -> None:
    words = ["pairs", "--scale", "small", "--store", tmp_path / "s", "--set", "sizes=1,20,30"]
    run = call("run", *words, "--dry-run", "--device", "cpu")
    assert run.stderr.splitlines() == ["note: no cell has sizes=20,30"]


@pytest.mark.parametrize("name", OURS)
def test_every_value_of_a_small_scale_gives_a_cell(name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("INTARSIA_DATA", ""))
    for study, wanted in {"graphs": "graphs/cora.npz", "lens": "stories260k/model.bin"}.items():
        if name == study and not (folder / wanted).exists():
            pytest.skip(f"{wanted} is not in the folder that INTARSIA_DATA names")
    run = call("run", name, "--scale", "small", "--store", tmp_path / "s", "--dry-run")
    assert run.stderr == ""


def test_dead_modules_are_named(tmp_path: Path) -> None:
    words = ["run", "single", "--scale", "small", "--seeds", 1, "--device", "cpu"]
    recipe = "recipe={epochs: 1, rounds: 1, sparsity: %s}"
    run = call(*words, "--models", "mlp(2)", "--set", recipe % 0.999, "--store", tmp_path / "s")
    why = "where pruning left no path from input to output in any module (1 group)"
    assert f"note: digits with IMP, {why}: prune less" in run.stderr


def test_what_is_missing_or_damaged_is_done_again(finished: Path, store: Path) -> None:
    gone, harmed, *_ = cell_files(store)
    gone.unlink()
    harmed.write_bytes(harmed.read_bytes()[:-20])
    run = call("run", "own", "--store", store, "--device", "cpu")
    assert f"{harmed.name}: is damaged" in run.stderr
    assert "training" not in run.stderr
    for path in cell_files(finished):
        assert (store / path.relative_to(finished)).read_bytes() == path.read_bytes()


def test_table_in_every_format(finished: Path, tmp_path: Path) -> None:
    words = ["table", "own", "--store", finished]
    shown = list(filter(None, map(str.rstrip, call(*words).stdout.splitlines())))
    call(*words, "-o", tmp_path / "t.txt")
    written = (tmp_path / "t.txt").read_text()
    assert " ".join(shown).split() == written.split()  # sentences are as wide as the window
    assert shown[0] == "entropies"
    assert any("cells " * 29 in line for line in shown)  # wider than the window, and all there
    assert "| power | seed |" in call(*words, "--format", "markdown").stdout
    assert call(*words, "--format", "latex").stdout.count(r"\toprule") == 2
    result = json.loads(call(*words, "--format", "json").stdout)
    assert (result["study"], result["missing"]) == ("own", 0)
    line = result["verdict"]["line"]
    assert line.startswith("entropy is highest for power 2")
    assert line in call(*words, "--format", "markdown").stdout
    assert line in " ".join(shown)
    cells = [json.loads(path.read_text()) for path in cell_files(finished)]
    first = next(c for c in cells if (c["settings"]["power"], c["settings"]["seed"]) == (1, 0))
    mean = sum(first["result"]["value"]) / 2
    assert result["tables"][0]["rows"][0][2]["mean"] == pytest.approx(mean)
    for ending, mark in {
        "md": "| power",
        "tex": r"\toprule",
        "json": '"study"',
        "txt": "power",
    }.items():
        call(*words, "-o", tmp_path / f"t.{ending}")
        assert mark in (tmp_path / f"t.{ending}").read_text()
    call(*words, "-o", tmp_path / "t.csv")
    with (tmp_path / "t-1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["power"], row["seed"]) for row in rows] == [
        ("1", "0"), ("2", "0"), ("1", "1"), ("2", "1"),
    ]  # fmt: skip
    assert float(rows[0]["entropy"]) == pytest.approx(mean, rel=1e-5)
    assert (tmp_path / "t-2.csv").read_text().split()[-2:] == ["cells", "4"]


def test_a_partial_store_is_shown_and_what_is_missing_said(store: Path, tmp_path: Path) -> None:
    gone, harmed, *_ = cell_files(store)
    gone.unlink()
    harmed.write_text("{")
    run = call("table", "own", "--store", store, "--format", "json")
    result = json.loads(run.stdout)
    assert (result["missing"], result["damaged"]) == (1, 1)
    assert "note: 1 of 4 cells are missing, 1 damaged" in run.stderr
    assert f"{harmed.name}: is damaged" in run.stderr
    run = call("figure", "own", "--store", store, "-o", tmp_path / "f.svg")
    assert run.stdout.strip() == str(tmp_path / "f.svg")
    assert "1 of 4 cells are missing, 1 damaged" in run.stderr
    run = call("archive", "own", "--store", store, "-o", tmp_path / "p.json")
    assert "1 of 4 cells are missing, 1 damaged" in run.stderr
    assert f"{harmed.name}: is damaged" in run.stderr
    assert load_archive(tmp_path / "p.json").missing == 2


def test_several_figures_get_a_suffix_or_a_folder(finished: Path, tmp_path: Path) -> None:
    call("figure", "own", "--store", finished, "-o", tmp_path / "f.svg")
    assert {p.name for p in tmp_path.iterdir()} == {"f-curves.svg", "f-again.svg"}
    ElementTree.parse(tmp_path / "f-curves.svg")
    call("figure", "own", "--store", finished, "-o", tmp_path / "new")
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"curves.svg", "again.svg"}


def test_figures_as_pdf_and_png(finished: Path, tmp_path: Path) -> None:
    call("figure", "own", "--store", finished, "-o", tmp_path, "--format", "pdf")
    assert (tmp_path / "curves.pdf").read_bytes().startswith(b"%PDF-")
    call("figure", "own", "--store", finished, "--seeds", 1, "-o", tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_pack_shows_what_the_store_did(finished: Path, tmp_path: Path) -> None:
    pack = tmp_path / "own.json"
    assert "4 cells" in call("archive", "own", "--store", finished, "-o", pack).stdout
    for words in (["table", "own"], ["table", "own", "--format", "markdown"]):
        assert call(*words, "--from", pack).stdout == call(*words, "--store", finished).stdout
    call("figure", "own", "--from", pack, "-o", tmp_path / "f.svg")
    call("figure", "own", "--store", finished, "-o", tmp_path / "g.svg")
    assert (tmp_path / "f-curves.svg").read_bytes() == (tmp_path / "g-curves.svg").read_bytes()
    said = refusal("table", "path", "--from", pack)
    assert "is of the study 'own', not of 'path'" in said
    wrong = call("table", "own", "--from", pack, "--scale", "small", code=2)
    assert "leave out --scale" in wrong.stderr


def test_a_table_does_not_take_the_place_of_its_archive(finished: Path, tmp_path: Path) -> None:
    archive = tmp_path / "own.json"
    call("archive", "own", "--store", finished, "-o", archive)
    before = archive.read_bytes()
    assert "is what is read" in refusal("table", "own", "--from", archive, "-o", archive)
    assert archive.read_bytes() == before


def test_a_study_of_ones_own_has_a_page(module: Path, finished: Path, tmp_path: Path) -> None:
    archive, page = tmp_path / "own.json", tmp_path / "own.html"
    call("archive", "own", "--store", finished, "-o", archive)
    STUDIES.pop("own")
    sys.modules.pop(MODULE)
    words = (archive, "-o", page)
    assert "by --module" in CommandLine("report").refusal(*words)
    CommandLine("report").call(*words, "--module", module)
    assert "A study of the tests" in page.read_text(encoding="utf-8")


def test_options_pick_cells_of_a_pack(finished: Path, tmp_path: Path) -> None:
    pack = tmp_path / "own.json"
    call("archive", "own", "--store", finished, "-o", pack)
    for words in (["--seeds", 1], ["--seeds", "0,1"], ["--set", "powers=2"], ["--set", "rate=0.5"]):
        picked, merged = (
            call("table", "own", *words, *place, "--format", "csv").stdout
            for place in (["--from", pack], ["--store", finished])
        )
        assert picked == merged
    run = call("table", "own", "--from", pack, "--set", "powers=2,9", "--format", "json")
    assert run.stderr == "note: no cell has powers=9\n"
    assert json.loads(run.stdout)["options"]["powers"] == [2, 9]
    assert [row[0] for row in json.loads(run.stdout)["tables"][0]["rows"]] == [2, 2]
    said = refusal("table", "own", "--from", pack, "--seeds", "7,8")
    assert "no cell of the study 'own' with these options is finished in" in said
    said = refusal("table", "own", "--from", pack, "--set", "recipe={epochs: 2}")
    assert "option 'recipe' cannot pick cells of an archive" in said
    assert said.strip().endswith("these can: powers, rate, seeds, slow")


def test_a_pack_of_other_definitions_is_told(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = tmp_path / "own.json"
    cell_files(store)[0].unlink()
    call("archive", "own", "--store", store, "-o", pack)
    said = call("table", "own", "--from", pack, "--seeds", 2).stderr.splitlines()
    assert said == ["note: 1 of 4 cells of the whole archive are missing"]
    now = STUDIES["own"]
    monkeypatch.setitem(STUDIES, "own", replace(now, version=2))
    said = call("table", "own", "--from", pack).stderr
    assert "note: 1 of 4 cells are missing" in said
    assert f"note: 3 of 3 cells of {pack} are not among own's today" in said
    said = call("figure", "own", "--from", pack, "-o", tmp_path).stderr
    assert "3 of 3 cells" in said
    fewer = {k: v for k, v in now.scales["small"].items() if k != "rate"}
    monkeypatch.setitem(STUDIES, "own", replace(now, scales={"small": fewer}))
    assert "3 of 3 cells" in call("table", "own", "--from", pack).stderr


def test_a_pack_is_shown_where_its_data_are_not(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fetched to look whether the cells are of today."""
    merged = load_packed(finished, tmp_path / "own.json")
    options = {**merged.options, "data": ["mnist"]}
    save_archive(tmp_path / "own.json", replace(merged, options=options))
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path))
    run = call("table", "own", "--from", tmp_path / "own.json")
    assert "entropies" in run.stdout
    assert run.stderr == ""


def test_unpack_leaves_a_run_what_the_pack_leaves_out(finished: Path, tmp_path: Path) -> None:
    merged = load_packed(finished, tmp_path / "own.json")
    half = replace(merged, measured=merged.measured[:3], missing=1)
    save_archive(tmp_path / "half.json", half)
    run = call("restore", tmp_path / "half.json", "--store", tmp_path / "s")
    assert run.stdout.strip() == f"3 cells of {tmp_path / 'half.json'}, in {tmp_path / 's'}"
    run = call("run", "own", "--store", tmp_path / "s", "--device", "cpu")
    assert run.stderr.count("cell ") == 1
    for path in cell_files(finished):
        assert (tmp_path / "s" / path.relative_to(finished)).read_bytes() == path.read_bytes()


def test_nothing_is_not_packed(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "none.json"
    said = refusal("archive", "own", "--store", finished, "--seeds", "8,9", "-o", out)
    assert "no cell of the study 'own' with these options is finished" in said
    assert not out.exists()


def test_only_damaged_cells_are_named(store: Path, tmp_path: Path) -> None:
    for path in cell_files(store):
        path.write_text("{")
    for words in (["table", "own"], ["archive", "own", "-o", tmp_path / "p.json"]):
        said = refusal(*words, "--store", store)
        assert "(4 are damaged: " in said
        assert ".json: is damaged" in said


@pytest.mark.parametrize(
    "words", [["archive", "own", "-o"], ["table", "own", "-o"], ["figure", "own", "-o"]]
)
def test_no_folder_is_made_by_the_way(words: list[str], finished: Path, tmp_path: Path) -> None:
    name = "f.svg" if words[0] == "figure" else "p.json"
    out = tmp_path / "slip" / name
    assert f"there is no folder {out.parent}" in refusal(*words, out, "--store", finished)
    assert not out.parent.exists()


def test_a_dash_is_stdout(finished: Path, here: Path) -> None:
    words = ["table", "own", "--store", finished, "--format", "csv"]
    assert call(*words, "-o", "-").stdout == call(*words).stdout
    words = ["figure", "own", "--store", finished]
    svg = call(*words, "--seeds", 1, "-o", "-").stdout
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "not for 2 as svg (curves, again)" in refusal(*words, "-o", "-")
    packed = call("archive", "own", "--store", finished, "-o", "-").stdout
    assert list(here.iterdir()) == []
    call("archive", "own", "--store", finished, "-o", "p.json")
    assert (here / "p.json").read_text() == packed


def load_packed(store: Path, path: Path) -> Archive:
    call("archive", "own", "--store", store, "-o", path)
    return load_archive(path)


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--seeds", "3"], "seeds", 3),
        (["--seeds", "3,4"], "seeds", [3, 4]),
        (["--set", "powers=2"], "powers", [2]),
        (["--set", "powers=1,3"], "powers", [1, 3]),
        (["--set", "powers=[1, 3]"], "powers", [1, 3]),
        (["--set", "powers=1e-1,3"], "powers", [0.1, 3]),
        (["--set", "rate=1"], "rate", 1),
        (["--models", "mlp(8, 4),mlp(3)"], "models", ["mlp(8, 4)", "mlp(3)"]),
        (["--set", "recipe={epochs: 2}"], "recipe", {"epochs": 2}),
    ],
)
def test_options_are_read_as_the_study_has_them(
    words: list[str], key: str, value: object, tmp_path: Path
) -> None:
    result = answer("run", "own", *words, "--store", tmp_path / "s", "--dry-run", "--device", "cpu")
    assert result["options"][key] == value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "pears"], "did you mean 'pairs'"),
        (["run", "own", "--set", "power=1"], "did you mean 'powers'? known: data, models, powers,"),
        (["run", "own", "--set", "colour=1"], "no option 'colour': known: data, models, powers,"),
        (["run", "own", "--set", "epochs=1"], "as in --set 'recipe={epochs: ...}'"),
        (["run", "own", "--scale", "smal"], "did you mean 'small'"),
        (["run", "own", "--seeds", "many"], "option 'seeds' is 'many': expected a count such as 5"),
        (["run", "own", "--seeds", "0"], "option 'seeds' is 0"),
        (["run", "own", "--set", "rate=high"], "option 'rate' is 'high': expected something like"),
        (["run", "own", "--set", "powers=1,x"], "option 'powers' is 'x'"),
        (["run", "own", "--set", "recipe=2"], "option 'recipe' is 2"),
        (["run", "own", "--set", "powers"], "expected KEY=VALUE"),
        (["run", "own", "--preset", "paper"], "has no option 'preset'"),
        (["run", "own", "--data", "digit"], "did you mean 'digits'"),
        (["run", "own", "--engine", "proceses"], "did you mean 'processes'"),
        (["run", "own", "--module", "no_such.py"], "there is no such file"),
        (["run", "own", "--module", "no.such.package"], "cannot be imported"),
        (["status", "own"], "there is no store at studies"),
        (["table", "own"], "there is no store at studies"),
        (["table", "own", "--format", "latec"], "did you mean 'latex'"),
        (["table", "own", "-o", "t.html"], "say it with --format"),
        (["figure", "own", "-o", "f.jpg"], "one of .svg, .pdf, .png"),
        (["table", "own", "--from", "no.json"], "no.json: cannot be read"),
    ],
)
@pytest.mark.usefixtures("here")
def test_errors_are_one_clear_line(words: list[str], said: str) -> None:
    assert said in refusal(*words)


def test_errors_about_stores_and_modules(finished: Path, tmp_path: Path) -> None:
    said = refusal("table", "own", "--store", finished, "--seeds", "8,9")
    assert "no cell of the study 'own' with these options is finished" in said
    (tmp_path / "letter.txt").write_text("not a store")
    (tmp_path / "other.json").write_text("{}")
    said = refusal("table", "own", "--from", tmp_path / "other.json")
    assert "is not an archive of a study: it has no 'digest'" in said
    (tmp_path / "other.json").write_text("[]")
    assert "is not an archive of a study: expected" in refusal("restore", tmp_path / "other.json")
    assert "is not a store" in refusal("status", "own", "--store", tmp_path)
    (tmp_path / "fails.py").write_text("import json\n\njson.loads('')\n")
    said = refusal("list", "--module", tmp_path / "fails.py")
    assert "line 3 of fails.py" in said
    assert "JSONDecodeError" in said
    (tmp_path / "json.py").write_text("")
    assert "rename the file" in refusal("list", "--module", tmp_path / "json.py")
    sys.path.remove(str(tmp_path))


def test_ctrl_c_ends_cleanly_and_the_same_command_goes_on(module: Path, tmp_path: Path) -> None:
    """A process of its own, stopped after its first cell; the second run does the rest."""
    words = ["run", "own", "--module", str(module), "--store", str(tmp_path / "s")]
    words += ["--set", "slow=0.3", "--device", "cpu"]
    code = (  # the handler is set, since a shell that runs us behind has SIGINT ignored
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from intarsia.cli.app import main; main()"
    )
    command = [sys.executable, "-c", code, "study", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stderr
        seen = ""
        while "cell 1 of 4" not in seen:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "stopped; the same command resumes" in rest
    assert "Traceback" not in rest
    before = {path: path.read_bytes() for path in cell_files(tmp_path / "s")}
    assert 0 < len(before) < 4
    again = call(*words)
    assert again.stderr.count("cell ") == 4 - len(before)
    assert len(cell_files(tmp_path / "s")) == 4
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_limit_of_minutes_ends_with_a_code_of_its_own(module: Path, tmp_path: Path) -> None:
    words = ["run", "own", "--module", module, "--store", tmp_path / "s", "--device", "cpu"]
    said = "stopped after 0 minutes: 4 of 4 cells are missing; the same command goes on"
    stopped = call(*words, "--minutes", 0, code=75)
    assert (stopped.stdout, stopped.stderr) == ("", f"{said}\n")
    as_json = json.loads(call(*words, "--minutes", 0, "--json", code=75).stdout)
    assert as_json == {"error": {"type": "StoppedError", "message": said}}
    kept = tmp_path / "kept.json"
    assert "4 cells, " in call(*words, "--minutes", 60, "--archive", kept).stdout
    assert len(load_archive(kept).measured) == 4
    call(*words, "--minutes", -1, code=2)
    assert "there is no folder" in call(*words, "--archive", tmp_path / "no" / "a", code=1).stderr


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
