"""The page: nothing from elsewhere, headings in order, colours that can be read, whole files."""

import base64
import hashlib
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from intarsia.errors import DataError, FileError
from intarsia.plots import curve_panels, svg
from intarsia.reports import Report, Section, page

CSS = files("intarsia.reports.html").joinpath("page.css").read_text()
SECTIONS = [Section("one", "First & last", "<p>body</p>"), Section("two", "Second", "")]


def test_a_page_is_whole_and_asks_for_nothing(read_page: Callable[[str], Any]) -> None:
    html = page("A <title>", "Lead & more", SECTIONS, {"Made of": "bank"})
    result = read_page(html)
    assert result.problems == []
    assert result.headings == [
        *((1, "A <title>"), (2, "On this page")),
        *((2, "First & last"), (2, "Second")),
    ]
    assert result.links == ["#content", "#one", "#two"]
    landmarks = [tag for tag, _ in result.tags if tag in ("header", "nav", "main", "footer")]
    assert landmarks == ["header", "nav", "main", "footer"]
    assert html.startswith("<!doctype html>")


def test_the_checks_see_what_is_wrong(read_page: Callable[[str], Any]) -> None:
    bad = '<p id="a"><h1>x</h1></p><div><h3 id="a"></div><img src="http://x/y.png"><svg></svg>'
    assert len(read_page(bad).problems) == 8


def test_only_the_pages_own_script_may_run() -> None:
    html = page("Title", "Lead", SECTIONS, {})
    script = re.search(r"<script>(.*?)</script>", html, re.S)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "default-src 'none'" in html


def test_sections_of_one_key_are_refused() -> None:
    with pytest.raises(DataError, match="the key 'one'"):
        page("Title", "Lead", [SECTIONS[0], SECTIONS[0]], {})


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_letters_stand_out_from_their_ground(scheme: str) -> None:
    marks = {"light": ":root", "dark": "prefers-color-scheme: dark", "print": "@media print"}
    block = CSS[CSS.index(marks[scheme]) :].partition("\n}")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+);", block))
    for context in ("ground", "sheet"):
        for letters in ("ink", "soft", "accent"):
            assert _contrast(colours[letters], colours[context]) >= 4.5, (scheme, letters, context)
    assert _contrast(colours["wood"], colours["groove"]) >= 3  # bars in their grooves


def test_a_report_writes_its_page_and_its_figures(tmp_path: Path) -> None:
    drawn = curve_panels({"panel": {"sum": {1: 0.5, 2: 0.75}}}, title="accuracy")
    report = Report("<!doctype html>", {"curve": drawn})
    assert report.save(tmp_path / "a.html") == [tmp_path / "a.html"]
    assert (tmp_path / "a.html").read_text() == "<!doctype html>"
    written = report.save(tmp_path / "b.html", tmp_path / "drawn", ("svg", "png"))
    assert [p.name for p in written] == ["b.html", "curve.svg", "curve.png"]
    assert (tmp_path / "drawn" / "curve.svg").read_text() == svg(drawn)
    assert (tmp_path / "drawn" / "curve.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileError, match="one of"):
        report.save(tmp_path / "c.html", tmp_path, ("jpg",))
    assert not (tmp_path / "c.html").exists()


def _contrast(one: str, other: str) -> float:
    """WCAG's ratio between two colours."""
    lights = sorted(_light(c) for c in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _light(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * d for d in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
