"""Tables: numbers, marks and notes in every format."""

import csv
import io
import json
import math
import statistics

import pytest
from rich.console import Console

from intarsia.errors import StudyError
from intarsia.studies.tables import Difference, Paper, Spread, Table


def small(**changes: object) -> Table:
    rows = [
        ["deep|er", 1, Spread(0.99123, 0.00512, 50, best=True), Paper(0.991, 0.005), 0.25],
        ["a_b & 5%", 2, Spread(0.5, 0.1, 50), Paper(0.977, 0.005, suspect=True), math.nan],
        ["none", 5, Spread(0.7, math.nan, 50), None, None],
    ]
    given = {"title": "One", "columns": ["model", "|R|", "accuracy", "paper", "x"], "rows": rows}
    return Table(**{**given, **changes})  # type: ignore[arg-type]


def cells(line: str) -> list[str]:
    return [
        cell.strip() for cell in line.strip().removeprefix("| ").removesuffix(" |").split(" | ")
    ]


def test_spread_is_of_what_is_there() -> None:
    values = [0.5, None, 0.75, math.nan, 0.25]
    result = Spread.of(values)
    assert (result.mean, result.sd, result.n) == (0.5, statistics.stdev([0.5, 0.75, 0.25]), 3)
    assert str(result) == "0.5000 (0.2500)"
    assert str(Spread.of([0.5])) == "0.5000"
    assert str(Spread.of([None])) == "-"
    assert Spread.of([]).n == 0
    assert Spread.of([1.0, 2.0], best=True).best


def test_large_numbers_have_fewer_decimals_where_they_are_shown() -> None:
    rows = [[Spread(234.36, 31.5651, 5), 1234.5678, Difference(-12.3456)], [
        Spread(-10.0, 0.12345, 5), 99.123456, Difference(150.04)], [
        Spread(9.87654, 12.3, 5), 0.123456, Difference(0.5)]]  # fmt: skip
    table = Table("t", ["live", "x", "d"], rows)
    expected = [
        ["234.4 (31.6)", "1234.6", "-12.35"],
        ["-10.00 (0.12)", "99.12", "+150.0"],
        ["9.8765 (12.3000)", "0.1235", "+0.5000"],
    ]
    assert [cells(line) for line in table.markdown().splitlines()[4:7]] == expected
    for row in expected:
        assert " & ".join(row).replace("-", "$-$") in table.latex()
        assert all(text in str(table) for text in row)
    assert table.csv().splitlines()[1] == "234.36,31.5651,5,1234.57,-12.3456"
    assert table.to_json()["rows"][0][0]["mean"] == 234.36


@pytest.mark.parametrize(
    ("ours", "paper", "expected"),
    [
        (0.981, Paper(0.991, 0.005), "-0.0100"),  # two deviations, not more
        (0.9804, Paper(0.991, 0.005), "-0.0106‡"),
        (0.9806, Paper(0.991, 0.005), "-0.0104"),  # 0.981 as printed
        (2.3023, Paper(2.302, 0.0), "+0.0003"),
        (2.2990, Paper(2.302, 0.0), "-0.0030‡"),
        (0.5, Paper(0.992, None), "-0.4920"),
        (0.99199, Paper(0.992, 0.1), "+0.0000"),
    ],
)
def test_difference_marks_what_is_beyond(ours: float, paper: Paper, expected: str) -> None:
    assert str(Difference.of(Spread(ours, 0.1, 5), paper)) == expected


def test_there_is_no_difference_from_nothing() -> None:
    assert Difference.of(Spread(0.5, 0.1, 5), None) is None
    assert Difference.of(Spread.of([]), Paper(0.5, 0.1)) is None


def test_markdown_by_hand() -> None:
    assert small().markdown().splitlines() == [
        "**One**",
        "",
        r"| model    | \|R\| |            accuracy |          paper |      x |",
        r"| -------- | ----: | ------------------: | -------------: | -----: |",
        r"| deep\|er |     1 | **0.9912 (0.0051)** |  0.991 (0.005) | 0.2500 |",
        r"| a_b & 5% |     2 |     0.5000 (0.1000) | 0.977 (0.005)† |      - |",
        r"| none     |     5 |              0.7000 |              - |      - |",
        "",
        "- mean (standard deviation), n = 50",
        "- bold: significantly above every other value of its group (Welch's t-test, 95%, not "
        "corrected for the number of groups)",
        "- † suspect: the paper prints the same digits for another data set",
    ]


def test_notes_stay_away_where_there_is_nothing_to_note() -> None:
    table = Table("t", ["a"], [[1], [2]])
    assert table.all_notes() == []
    assert table.markdown().endswith("|   2 |\n")
    assert Table("t", ["a"], [], ["no cell yet"]).all_notes() == ["no cell yet"]
    assert "| a   |" in Table("t", ["a"], []).markdown()


def test_n_is_one_column_where_rows_differ() -> None:
    rows = [["a", Spread(0.5, 0.1, 10), Spread(1.5, 0.1, 10), "x"],
            ["b", Spread(0.5, 0.1, 20), Spread.of([]), "y"], ["c", None, None, "z"]]  # fmt: skip
    lines = Table("t", ["who", "first", "second", "last"], rows).markdown().splitlines()
    assert cells(lines[2]) == ["who", "first", "second", "last", "n"]
    assert [cells(line)[-1] for line in lines[4:7]] == ["10", "20", "-"]
    assert lines[-1] == "- mean (standard deviation)"


def test_n_stands_beside_each_where_a_row_has_several() -> None:
    rows = [["a", Spread(0.5, 0.1, 10), 7, Spread(1.5, 0.1, 9)], ["b", None, 8, None]]
    lines = Table("t", ["who", "first", "k", "second"], rows).markdown().splitlines()
    assert cells(lines[2]) == ["who", "first", "first n", "k", "second", "second n"]
    assert cells(lines[4]) == ["a", "0.5000 (0.1000)", "10", "7", "1.5000 (0.1000)", "9"]
    assert cells(lines[5]) == ["b", "-", "-", "8", "-", "-"]


def test_csv_has_a_column_for_every_number() -> None:
    rows = list(csv.DictReader(io.StringIO(small().csv())))
    assert list(rows[0]) == [
        "model", "|R|", "accuracy", "accuracy sd", "accuracy n", "accuracy best",
        "paper", "paper sd", "paper suspect", "x",
    ]  # fmt: skip
    assert rows[0]["model"] == "deep|er"
    assert rows[0]["accuracy"] == "0.99123"
    assert (rows[0]["accuracy best"], rows[1]["accuracy best"]) == ("yes", "no")
    assert (rows[1]["paper"], rows[1]["paper suspect"]) == ("0.977", "yes")
    assert rows[2]["accuracy sd"] == rows[2]["paper"] == rows[2]["x"] == rows[1]["x"] == ""
    beyond = Table("t", ["off"], [[Difference(-0.5, True)], [Difference(0.25)], [None]])
    assert beyond.csv() == "off,off beyond\n-0.5,yes\n0.25,no\n,\n"


def test_latex_escapes_every_letter_of_its_own() -> None:
    name = r"a_b & 5% of $1 #2 {x} ~ ^ \end < > |"
    text = Table(name, ["x", "d"], [[name, Difference(-0.5, True)]], [name]).latex()
    escaped = (
        r"a\_b \& 5\% of \$1 \#2 \{x\} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{}end \textless{} \textgreater{} \textbar{}"
    )
    assert text.count(escaped) == 3
    assert rf"{escaped} & $-$0.5000\ddag{{}} \\" in text
    assert r"\begin{tabular}{lr}" in text


def test_latex_is_bold_and_balanced() -> None:
    text = small().latex()
    assert r"\textbf{0.9912 (0.0051)} & 0.991 (0.005) & 0.2500 \\" in text
    assert r"0.977 (0.005)\dag{} & - \\" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert [line.count(" & ") for line in body.strip().splitlines()] == [4, 4, 4]


def test_json_is_plain_and_whole() -> None:
    result = small().to_json()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert result["rows"][0][2] == {"mean": 0.99123, "sd": 0.00512, "n": 50, "best": True}
    assert result["rows"][1][3] == {"mean": 0.977, "sd": 0.005, "suspect": True}
    assert result["rows"][2][2]["sd"] is None
    assert result["rows"][1][4] is None
    assert result["notes"] == small().all_notes()


def test_text_is_aligned() -> None:
    lines = str(small()).splitlines()
    assert lines[0] == "One"
    row = next(line for line in lines if "deep|er" in line)
    head = next(line for line in lines if "model" in line)
    assert head.index("accuracy") + len("accuracy") == row.index("(0.0051)") + len("(0.0051)")
    assert "† suspect" in lines[-1]


def test_the_terminal_shows_the_best_in_bold_and_markup_as_it_is() -> None:
    text = io.StringIO()
    table = Table("t", ["a"], [["[red]x[/red]", ], [Spread(0.5, 0.1, 3, best=True)]])  # fmt: skip
    Console(file=text, force_terminal=True, width=80, color_system="standard").print(table)
    assert "[red]x[/red]" in text.getvalue()
    assert "\x1b[1m0.5000 (0.1000)\x1b[0m" in text.getvalue()


def test_rows_have_an_entry_for_every_column() -> None:
    with pytest.raises(StudyError, match="'One': row 0 has 1 entries for 2 columns"):
        Table("One", ["a", "b"], [[1]])


def test_a_paper_that_prints_one_place_is_shown_with_one() -> None:
    paper = Paper(72.0, 1.5, places=1)
    off = Difference.of(Spread(68.9891, 0.4, 5), paper)
    assert str(paper) == "72.0 (1.5)"
    assert off == Difference(68.9891 - 72.0, beyond=False, places=1)
    assert str(off) == "-3.0"
    assert str(Difference.of(Spread(0.9, 0.1, 5), Paper(0.871))) == "+0.0290"
