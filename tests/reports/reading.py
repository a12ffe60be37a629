"""A page as a person reads it: the words and the tables of one section."""

import re
from html import unescape


def part(html: str, key: str) -> str:
    """The HTML of one section."""
    result = re.search(rf'<section id="{key}".*?</section>', html, re.DOTALL)
    assert result, f"there is no section {key}"
    return result[0]


def words(html: str) -> str:
    """The text, drawings left out."""
    html = re.sub(r"<svg.*?</svg>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def rows(html: str) -> dict[str, list[float]]:
    """The numbers of a table by the head of the row."""
    result = {}
    for row in re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", html, re.DOTALL):
        name, *cells = [unescape(c) for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        result[name] = [float(cell) for cell in cells]
    return result


def lines(html: str) -> list[str]:
    """The commands at the end of a page."""
    last = html[html.rindex("<section ") :]
    result = re.search(r'<pre class="commands"><code>(.*?)</code>', last, re.DOTALL)
    assert result
    return unescape(result[1]).splitlines()
