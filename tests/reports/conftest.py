"""What tests ask of a page: `read_page` checks it and collects what matters."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """Reads a page; `problems` names what is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.problems: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self.stack]
        self._check(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        result = dict(attrs)
        self.tags.append((tag, result))
        self.ids += [result["id"]] if result.get("id") else []
        self.links += [str(result[key]) for key in ("href", "src") if key in result]
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack[-1] != tag:
            self.problems.append(f"</{tag}> inside {self.stack[-3:]}")
        else:
            self.stack.pop()

    def handle_data(self, data: str) -> None:
        if self.stack and re.fullmatch(r"h[1-6]", self.stack[-1]):
            level, words = self.headings[-1]
            self.headings[-1] = (level, words + data)

    def _check(self, html: str) -> None:
        twice = {i for i in self.ids if self.ids.count(i) > 1}
        self.problems += [f"the id {i!r} comes twice" for i in twice]
        levels = [level for level, _ in self.headings]
        if levels.count(1) != 1 or levels[0] != 1:
            self.problems.append(f"headings begin {levels[:3]} and have {levels.count(1)} h1")
        for before, after in pairwise(levels):
            if after > before + 1:
                self.problems.append(f"h{after} follows h{before}")
        for link in self.links:
            if not link.startswith(("#", "data:image/png;base64,")):
                self.problems.append(f"asks for {link}")
            if link.startswith("#") and link[1:] not in self.ids:
                self.problems.append(f"nothing is at {link}")
        if re.search(r"url\((?!#)|@import|<link|<iframe|<object", html):
            self.problems.append("loads something from elsewhere")
        self.problems += [f"<{tag}> has no role" for tag, has in self.tags if _nameless(tag, has)]


@pytest.fixture
def read_page() -> Callable[[str], Page]:
    """Reads a page; what is wrong with it is in `problems`."""
    return Page


@pytest.fixture(scope="session")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of three tiny modules, once for each of two seeds."""
    import intarsia as ia

    folder = tmp_path_factory.mktemp("banks") / "two seeds"
    settings = {"model": "mlp(16)", "epochs": 1, "rounds": 1, "sparsity": 0.5, "seeds": [0, 1]}
    classes, preset = [["0"], ["1"], ["2"]], "paper"
    ia.train("digits", out=folder, partition=classes, preset=preset, progress=False, **settings)
    return folder


def _nameless(tag: str, has: dict[str, str | None]) -> bool:
    """Whether a picture says nothing to those who cannot see it."""
    if tag == "img":
        return not has.get("alt")
    named = has.get("role") == "img" and bool(has.get("aria-label"))
    return tag == "svg" and not named and has.get("aria-hidden") != "true"
