"""A bar that shows what is done where it is wanted, and an environment that is put back."""

import os
import sys

import pytest

from intarsia.process import BYTES, environment, progress_bar


@pytest.mark.parametrize(
    ("unit", "words"),
    [("", ["3/4"]), ("steps", ["3/4", "steps"]), (BYTES, ["3/4 bytes"])],
)
def test_a_bar_shows_what_is_done(
    unit: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("counting", 4, True, unit=unit, done=1) as advance:
        advance(1)
        advance(1, "nearly done")
    shown = capsys.readouterr().err
    assert all(word in shown for word in [*words, "nearly done"])


@pytest.mark.parametrize(("terminal", "shown"), [(True, None), (False, None), (True, False)])
def test_without_being_asked_a_bar_is_for_terminals(
    terminal: bool,
    shown: bool | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with progress_bar("counting", 2, shown) as advance:
        advance(2, "done")
    assert bool(capsys.readouterr().err) is (terminal and shown is None)


def test_variables_are_put_back_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_OLD", "before")
    monkeypatch.delenv("INTARSIA_NEW", raising=False)
    seen = []

    def fail() -> None:
        with environment({"INTARSIA_OLD": "now", "INTARSIA_NEW": "now"}):
            seen.extend([os.environ["INTARSIA_OLD"], os.environ.pop("INTARSIA_NEW")])
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert seen == ["now", "now"]
    assert os.environ["INTARSIA_OLD"] == "before"
    assert "INTARSIA_NEW" not in os.environ
