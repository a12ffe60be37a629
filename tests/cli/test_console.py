"""What names in files would have a terminal do is not printed; colours of our own are."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from intarsia.cli import console
from intarsia.cli.app import app
from intarsia.models import build
from small_modules import small_module

ORDERS = (
    "\x1b[31mred\x1b[0m \x1b]0;title\x07\x9b2J \x1b]8;;http://a\x1b\\link "
    "\rback\x08 \x7f\u202eb\x1bc"
)
PLAIN = "red  link back b"


def test_orders_go_and_text_stays() -> None:
    assert console.harmless(ORDERS) == PLAIN
    assert console.harmless("größe\n\t日本 😀 ±") == "größe\n\t日本 😀 ±"


def test_tables_lines_and_remarks_print_none(capsys: pytest.CaptureFixture[str]) -> None:
    console.show(
        console.table([ORDERS], [[ORDERS]], ORDERS), console.facts([(ORDERS, ORDERS)]), ORDERS
    )
    console.show_wide([Text(ORDERS)])
    console.say(ORDERS)
    out, err = capsys.readouterr()
    assert out.count(PLAIN) == 6  # a title, a heading, a cell, two facts, a line
    assert err == PLAIN + "\n"
    assert not set("\x1b\x07\x08\r\x7f\x9b\u202e") & set(out)


def test_json_has_them_by_number(capsys: pytest.CaptureFixture[str]) -> None:
    console.show_json({"name": ORDERS})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": ORDERS}
    assert not set("\x1b\x07\x08\r\x7f\x9b\u202e") & set(out)


def test_colours_of_our_own_stay() -> None:
    text = StringIO()
    console.HarmlessConsole(file=text, force_terminal=True, color_system="standard").print(
        Text(ORDERS, "bold")
    )
    assert "\x1b[1m" in text.getvalue()
    assert "\x1b[31m" not in text.getvalue()


def test_a_modules_name_is_no_order(tmp_path: Path) -> None:
    state = dict(build("mlp(4)", (3,), 2).state_dict())
    module = small_module("a", state, {}, ["a", "b"], "mlp(4)", (3,))
    replace(module, name=ORDERS).save(tmp_path / "m.safetensors")
    run = CliRunner().invoke(app, ["inspect", str(tmp_path / "m.safetensors")])
    assert run.exit_code == 0
    assert PLAIN in run.output
    assert "\x1b" not in run.output


@pytest.mark.parametrize(
    "words", [["\x1b[31mverb"], ["inspect", "--\x1b[31mflag"], ["inspect", "\x1b[31mfile"]]
)
def test_errors_of_usage_repeat_no_orders(words: list[str]) -> None:
    run = CliRunner().invoke(app, words)
    assert run.exit_code
    assert "\x1b" not in run.output
