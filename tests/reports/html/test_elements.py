"""Pieces of a page: text is escaped, tables have heads, drawings keep their ids apart."""

import math
import re

import pytest

from intarsia.errors import DataError
from intarsia.plots import curve_panels, svg
from intarsia.reports.html import elements
from intarsia.reports.html.words import counted, listed, nats, percent, spread

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} 50" width="1" height="1">{}</svg>'
NASTY = "<b>&\"'"
SAFE = "&lt;b&gt;&amp;&quot;&#x27;"


@pytest.mark.parametrize(
    "html",
    [
        elements.paragraph(NASTY),
        elements.listing([NASTY]),
        elements.facts({NASTY: NASTY}),
        elements.numbers([(NASTY, NASTY)]),
        elements.table([NASTY, NASTY], [[NASTY, NASTY]], NASTY),
        elements.figure(SVG.format(100, ""), NASTY, NASTY, name="it"),
        elements.figure(SVG.format(900, ""), NASTY, NASTY, name="it"),
        elements.commands([NASTY]),
        elements.folded(NASTY, ""),
    ],
)
def test_text_is_escaped(html: str) -> None:
    assert SAFE in html
    assert NASTY not in html
    assert "<b>" not in html


def test_a_table_has_heads_for_columns_and_rows() -> None:
    rows = [["three", 0.5, "yes"], ["eight", math.nan, "no"], ["nine", None, "no"]]
    html = elements.table(["digit", "share", "known"], rows, "Digits")
    assert re.findall(r'<th scope="col"( class="number")?>(\w+)', html) == [
        ("", "digit"),
        (' class="number"', "share"),
        ("", "known"),
    ]
    assert re.findall(r'<th scope="row">(\w+)', html) == ["three", "eight", "nine"]
    assert re.findall(r'<td class="number">([^<]+)', html) == ["0.5000", "-", "-"]
    assert "<caption>Digits</caption>" in html
    assert 'tabindex="0"' in html  # what scrolls can be reached by the keyboard


def test_a_table_without_rows_or_with_a_short_one() -> None:
    assert "<tbody>\n</tbody>" in elements.table(["a", "b"], [], "None")
    with pytest.raises(DataError, match="'Digits' has a row of 1 entries for 2 columns"):
        elements.table(["a", "b"], [["1", "2"], ["3"]], "Digits")


def test_a_drawing_keeps_its_ids_apart_and_says_its_message() -> None:
    inside = '<title>old</title><path id="p"/><use href="#p"/><g clip-path="url(#p)"/>'
    html = elements.figure(SVG.format(100, inside), "Caption", "It rises", name="one")
    assert re.findall(r'(?:id="|href="#|url\(#)([\w-]+)', html) == [
        *("figure-one", "one-p", "one-p", "one-p")
    ]
    assert html.count('role="img" aria-label="It rises"') == 1
    assert "old" not in html
    assert "tabindex" not in html  # narrow enough for a phone
    assert 'tabindex="0"' in elements.figure(SVG.format(900, ""), "Wide", "", name="two")


def test_the_houses_figures_can_be_put_into_a_page() -> None:
    drawn = curve_panels({"panel": {"sum": {1: 0.5, 2: 0.75}}}, title="accuracy")
    html = elements.figure(svg(drawn), "Caption", "Message", name="it")
    assert html.count("<svg") == html.count("</svg>") == 1
    assert "panel</text>" in html
    assert 'font-size="12"' in html


def test_what_is_no_drawing_is_refused() -> None:
    with pytest.raises(DataError, match="'it' is not an SVG with a viewBox"):
        elements.figure("<svg></svg>", "", "", name="it")


def test_pieces_side_by_side_have_the_room_they_need() -> None:
    wide = elements.figure(SVG.format(400, ""), "", "", name="a")
    assert "--least:300px" in elements.side_by_side([wide])
    assert "--least:240px" in elements.side_by_side(["<p>text</p>"])


def test_words() -> None:
    assert counted(1, "class", "classes") == "one class"
    assert counted(12, "module") == "twelve modules"
    assert counted(1300, "module") == "1,300 modules"
    assert [percent(v) for v in (1.0, 0.99961, 0.9994, 0.0, math.nan)] == [
        *("100%", "99.96%", "99.9%", "0.0%", "-")
    ]
    assert percent(0.999999) == "99.99%"  # 100% is said of all alone
    assert [percent(v) for v in (0.0004, 1e-7, 0.0005)] == ["0.04%", "0.01%", "0.1%"]
    assert spread([0.75, 0.85]) == "80.0% ± 7.1"  # sqrt(2) * 0.05
    assert spread([0.75]) == "75.0%"
    assert nats(2.3) == "2.300"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcde"), most=3) == "a, b and 3 more"
    assert listed([]) == ""


def test_words_between_backticks_are_code() -> None:
    assert elements.paragraph("`a<b` and `c") == "<p><code>a&lt;b</code> and `c</p>"
    assert "<li><code>x</code></li>" in elements.listing(["`x`"])
