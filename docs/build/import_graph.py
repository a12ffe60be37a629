"""Draw which room of the package imports which, from the code, into CONTRIBUTING.md.

    python docs/build/import_graph.py

A room is a folder or a file of src/intarsia; sub-rooms belong to their room. Left out are the
rooms that everybody imports, and arrows that others imply: where reports imports studies and
studies imports data, no arrow goes from reports to data. Rooms that import each other share a box.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pages import ROOT, filled

SOURCE = ROOT / "src" / "intarsia"
PAGE = ROOT / "CONTRIBUTING.md"
# Imported by nearly all.
COMMON = {"errors", "limits", "parsing", "specs", "files", "locks", "process"}
Graph = Mapping[str, set[str]]  # room -> the rooms it imports


def main() -> None:
    PAGE.write_text(page())
    print(PAGE.relative_to(ROOT))


def page() -> str:
    """CONTRIBUTING.md with the graph as it is now."""
    rooms = {room: {r for r, _ in found} for room, found in imports().items()}
    return filled(PAGE, {"import graph": mermaid(rooms)})


def imports() -> dict[str, set[tuple[str, str]]]:
    """For each room the rooms that it imports, each with the file that does so."""
    result: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        room = place.parts[0].removesuffix(".py")
        if room.startswith("__"):
            continue  # the package itself, which gives out names of all rooms
        others = {name.split(".")[1] for name in imported(path) if name.startswith("intarsia.")}
        others = {other for other in others if other != room and not other.startswith("__")}
        result.setdefault(room, set()).update((other, str(place)) for other in others)
    return result


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Full names of all that a file imports, also within functions."""
    return tuple(_imported(path))


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text())


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def mermaid(rooms: Graph) -> str:
    """A flow chart from the rooms that import nothing to those that nobody imports."""
    kept = {room: others - COMMON for room, others in rooms.items() if room not in COMMON}
    reach = {room: _reachable(kept, room) for room in kept}
    box = {a: min({a, *(b for b in reach[a] if a in reach[b])}) for a in kept}
    below = {b: {box[o] for a in kept if box[a] == b for o in kept[a]} - {b} for b in box.values()}
    lines = ["```mermaid", "flowchart LR"]
    for name in sorted(below):
        label = ", ".join(room for room in sorted(kept) if box[room] == name)
        lines.append(f'    {name}["{label}"]')
    for name in sorted(below):
        implied = {o for other in below[name] for o in _reachable(below, other)}
        lines += [f"    {other} --> {name}" for other in sorted(below[name] - implied)]
    return "\n".join([*lines, "```"])


def _reachable(graph: Graph, start: str) -> set[str]:
    """All that it imports, directly or through others."""
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        room = ahead.pop()
        if room not in seen:
            seen.add(room)
            ahead += graph[room]
    return seen


if __name__ == "__main__":
    main()
