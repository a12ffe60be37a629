"""sweetspot report and studio on the embedded network: no data is needed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from intarsia.studio.patterns import PatternSession
from intarsia.studio.web import server

sweetspot = CommandLine("sweetspot")


def test_report_writes_a_page_and_its_figures(tmp_path: Path) -> None:
    out, figures, few = tmp_path / "totem.html", tmp_path / "figures", ("--sweeps", 1)
    answer = sweetspot.answer(
        "report", "totem", "-o", out, "--weights", 3, *few, "--figures", figures
    )
    assert answer["bytes"] == out.stat().st_size
    assert sorted(path.name for path in figures.iterdir()) == [
        "maps.svg", "pictures.svg", "sweeps.svg",
    ]  # fmt: skip
    assert "needs no network" in sweetspot.call("report", "-o", out, "--weights", 2, *few).stdout
    assert "is a folder" in sweetspot.refusal("report", "-o", tmp_path)


def test_studio_serves_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    def serve(session: Any, title: str, host: str, port: Any, *, ready: Any, **more: Any) -> None:
        served.append((session, host, port, more))
        ready("http://127.0.0.1:1/")

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(server, "check_extra", lambda: None)
    words = ("--size", 32, "--port", 7999, "--no-open", "--limit", "connections=9")
    assert sweetspot.answer("studio", "totem", *words) == {"address": "http://127.0.0.1:1/"}
    session, host, port, more = served[0]
    assert isinstance(session, PatternSession)
    assert (session.names[0], session.size) == ("totem", 32)
    assert (host, port, more["open_browser"]) == ("127.0.0.1", 7999, False)
    assert more["limits"].connections == 9


@pytest.mark.skipif(find_spec("gradio") is None, reason="needs the extra studio")
def test_studio_refuses_before_it_serves() -> None:
    for bad, reason in (
        (("totme",), "did you mean 'totem'"),
        (("--size", 1), "size is 1"),
        (("--limit", "conections=9"), "did you mean 'connections'"),
    ):
        run = sweetspot.call("studio", *bad, code=1)
        assert reason in run.stderr
        assert "Traceback" not in run.stderr
