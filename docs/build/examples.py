"""Run the examples of the docs page by page, and write what they print below them.

    python docs/build/examples.py docs/tutorial.md docs/howto/*.md

Every block of Python or of shell commands is run, in the order of the page and in an empty folder,
unless the comment `<!-- not run: why -->` stands above it. A block with a title is written to a
file of that name. A block of `text` right below one that ran holds what that one printed;
`difference` knows how far other machines may differ from it.
"""

import ast
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUN = ("python", "bash")
# A comment that says why a block is not run, its fence with language and title, and its text.
FENCE = re.compile(
    r"(?P<mark><!-- not run: (?P<why>[^\n]+) -->\n+)?"
    r'(?P<indent>[ ]*)```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
# Words, names and the numbers in them are the same on every machine. Numbers that stand by
# themselves were measured, and other processors round otherwise: training with AVX-512, AVX2, AVX
# and SSE moved the numbers of these pages by up to 0.007, those of one class, of which a test split
# has 36 samples, by up to 0.038, a fraction of a class by one sample, 0.028. Threads moved none.
NEAR = 0.03  # of accuracies, entropies, percentages as fractions: one sample of a class
NEAR_OF_A_CLASS = 0.06  # of the rows of tables with a row for each class: two samples
RELATIVE = 0.05  # of counts, so that those below 20 are exact, and of numbers from 10 on
NUMBER = re.compile(r"([(\[]*)([-+]?\d+(?:,\d{3})*(?:\.(\d+))?)(%?)([^\w%]*)")


@dataclass(frozen=True)
class Block:
    """A fenced block, and where it stands on its page."""

    language: str
    text: str
    title: str | None
    not_run: str | None  # why
    line: int  # of its first line of text
    span: tuple[int, int]  # of its text
    output: tuple[int, int] | None  # of the text block that holds what it prints

    @property
    def runs(self) -> bool:
        return self.language in RUN and self.not_run is None

    @property
    def commands(self) -> list[list[str]]:
        """The words of every shell command."""
        joined = self.text.replace("\\\n", " ").splitlines()
        return [words for line in joined if (words := shlex.split(line, comments=True))]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    fences = list(FENCE.finditer(page))
    result = []
    for fence, after in zip(fences, [*fences[1:], None], strict=False):
        shown = (
            after is not None
            and after["language"] == "text"
            and not page[fence.end() : after.start()].strip()
        )
        result.append(
            Block(
                fence["language"],
                fence["text"],
                fence["title"],
                fence["why"],
                page.count("\n", 0, fence.start("text")) + 1,
                fence.span("text"),
                after.span("text") if shown and after is not None else None,
            )
        )
    return result


def link_clone(folder: Path) -> None:
    """What a clone has that commands name."""
    for name in ("docs", "recipes"):
        (folder / name).symlink_to(ROOT / name)


def run_page(path: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page in this folder; each with what it printed."""
    names: dict[str, Any] = {"__name__": path.stem}
    for block in blocks(path.read_text()):
        if block.title:
            Path(block.title).write_text(block.text)
        if block.runs:
            run = _python if block.language == "python" else _shell
            yield block, run(block, path, names)


def _python(block: Block, path: Path, names: dict[str, Any]) -> str:
    """As a notebook does, show the value of the last line."""
    above = "\n" * (block.line - 1)  # so that errors name the line
    tree = ast.parse(above + block.text, path.name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


def _shell(block: Block, path: Path, names: dict[str, Any]) -> str:
    from typer.testing import CliRunner

    from intarsia.cli.app import app

    printed = []
    for words in block.commands:
        where = f"{path.name}:{block.line}: {shlex.join(words)}"
        assert words[0] == "intarsia", f"{where}: only intarsia is run; say above why it is not"
        ran = CliRunner().invoke(app, words[1:], prog_name="intarsia")
        assert ran.exit_code == 0, f"{where}: {ran.stderr or ran.exception}"
        printed.append(ran.stdout)
    return "".join(printed)


def filled(path: Path) -> str:
    """The page with what its blocks print now."""
    page = path.read_text()
    for block, printed in reversed(list(run_page(path))):
        if block.output is not None:
            start, end = block.output
            page = page[:start] + shown(printed) + page[end:]
    return page


def shown(printed: str) -> str:
    """What a block printed as a page has it."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def difference(expected: str, printed: str) -> str | None:
    """The first line of an example's output that differs from what its page expects, or None."""
    lines, others = _lines(expected), _lines(printed)
    for line, other in zip(lines, others, strict=False):
        near = NEAR_OF_A_CLASS if "│" in line else NEAR
        pairs = line.split(), other.split()
        same = len(pairs[0]) == len(pairs[1])
        if not same or not all(_same_word(*pair, near) for pair in zip(*pairs, strict=True)):
            return f"{line.strip()!r}, not {other.strip()!r}"
    return None if len(lines) == len(others) else f"{len(lines)} lines, not {len(others)}"


def _lines(text: str) -> list[str]:
    """Without what nobody can know beforehand: seconds, digests, the length of a rule."""
    text = re.sub(r"(?<![\w.])\d+(\.\d+)? s\b", "some s", text)
    text = re.sub(r"\b[0-9a-f]{16,}\b", "digest", text)
    return re.sub(r"[─━]+", "-", text).strip("\n").splitlines()


def _same_word(word: str, other: str, near: float) -> bool:
    one, two = NUMBER.fullmatch(word), NUMBER.fullmatch(other)
    if not (one and two):
        return word == other
    around = [(n[1], len(n[3] or ""), n[4], n[5]) for n in (one, two)]  # decimals, too
    a, b = (float(n[2].replace(",", "")) for n in (one, two))
    measured = near if one[3] and abs(a) < 10 else RELATIVE * abs(a)
    return around[0] == around[1] and abs(a - b) <= (100 * near if one[4] else measured)


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            link_clone(Path(folder))
            with contextlib.chdir(folder):
                page = filled(path)
        path.write_text(page)
        print(os.path.relpath(path))


if __name__ == "__main__":
    main()
