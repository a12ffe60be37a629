"""Demos: what `intarsia demo` runs, each with a page of its own at the end."""

__all__: list[str] = []  # the command line takes them from their files
