"""The command line: every verb is a function that parses, calls and prints."""

from intarsia.cli.app import main
from intarsia.cli.verbs import verb

__all__ = ["main", "verb"]
