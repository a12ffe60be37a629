"""Calls of the command line in this process, and what they must look like."""

import json
import subprocess
import sys
from typing import Any

from typer.testing import CliRunner

from intarsia.cli.app import app

WITHOUT_TORCH = """
import sys
from intarsia.cli.app import main
for words in sys.argv[1:]:
    sys.argv = ["intarsia", *words.split()]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words
    assert "torch" not in sys.modules and "sklearn" not in sys.modules, words
    print(end="\\0")
"""


def run_without_torch(*commands: str) -> list[str]:
    """What commands print in one process, each of which must end well and not import torch."""
    call = [sys.executable, "-c", WITHOUT_TORCH, *commands]
    run = subprocess.run(call, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split("\0")[:-1]


class CommandLine:
    """`intarsia` with the same first words in every call."""

    def __init__(self, *before: str) -> None:
        self.before = before

    def call(self, *words: object, code: int = 0) -> Any:
        """What a command printed, and its exit code, which must be this one."""
        run = CliRunner().invoke(app, [*self.before, *map(str, words)])
        assert run.exit_code == code, (run.stdout, run.stderr, run.exception)
        return run

    def answer(self, *words: object) -> dict[str, Any]:
        """The one JSON object that a command prints."""
        return json.loads(self.call(*words, "--json").stdout)

    def refusal(self, *words: object) -> str:
        """The one line that a command prints on stderr where it fails."""
        run = self.call(*words, code=1)
        assert run.stdout == ""
        assert run.stderr.startswith("error: ")
        assert run.stderr.count("\n") == 1
        assert "Traceback" not in run.stderr
        return run.stderr
