"""Mutants: which there are of a toy module, and that a test kills what it can see and no more."""

from pathlib import Path
from textwrap import dedent

import pytest

from benchmarks.mutation.mutate import function_code, mutants_of, mutated_code

ROOT = Path(__file__).resolve().parents[1]
TOY = dedent(
    '''
    """A toy."""

    from typing import Literal

    LIMIT = 3
    Side = Literal["low", "high"]
    __all__ = ["clip"]


    def clip(value: int, low: int = 0) -> int:
        """The value from below."""
        if value < low:
            return low
        message = f"{value} is above {LIMIT}" + "!"
        if value > LIMIT and value != 99:
            raise ValueError(message)
        return max(value, 0)


    class Box:
        @property
        def size(self) -> int:
            return self.width * 2

        def __init__(self, width: int) -> None:
            self.width = width
    '''
)
TESTS = {
    "seeing": """
        from toy import Box, clip, LIMIT
        import pytest

        def test_sees():
            assert [clip(n) for n in (-1, 0, 1, 3)] == [0, 0, 1, 3]
            assert clip(1, 2) == clip(2, 2) == 2
            for n in (4, 5):
                with pytest.raises(ValueError):
                    clip(n)
            assert clip(99) == 99
            assert Box(3).size == 6
        """,
    "failing": """
        from toy import Box, clip
        import pytest
        import sys

        def test_fails_already():
            assert clip(1) == 2

        def test_is_skipped():
            pytest.skip("always")

        def test_is_blind():
            clip(1)
            Box(3).size

        def test_passes_once():
            assert "wave" not in sys.modules  # what tests import is there in every trial
            import wave

            clip(1)
            Box(3).size
        """,
}


def test_mutants_of_a_toy() -> None:
    changes = {(m.before, m.after) for m in mutants_of(TOY, "toy.py")}
    assert {
        ("value < low", "value <= low"),
        ("value < low", "value >= low"),
        ("value > LIMIT and value != 99", "value > LIMIT or value != 99"),
        ("value > LIMIT and value != 99", "value > LIMIT"),
        ("99", "100"),
        ("3", "4"),
        ("0", "1"),
        ("max(value, 0)", "min(value, 0)"),
        ("raise ValueError(message)", "pass"),
        ("return low", "return None"),
        ("self.width * 2", "self.width / 2"),
        ("self.width = width", "pass"),
    } <= changes
    assert not [before for before, _ in changes if "toy" in before or "above" in before]
    assert not [before for before, _ in changes if before in ("'low'", "'clip'", "'!'")]


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("max(a, b)", {"min(a, b)"}),
        ("torch.equal(a, b)", set()),
        ("x.max(a, b)", {"x.min(a, b)", "x.max(b, a)"}),
        ("max(a, b, key=f)", {"min(a, b, key=f)", "max(b, a, key=f)"}),
        ("f(a, b)", {"f(b, a)"}),
    ],
)
def test_arguments_are_swapped_where_their_order_counts(source: str, after: set[str]) -> None:
    assert {mutant.after for mutant in mutants_of(f"y = {source}", "some.py")} == after


def test_a_mutant_is_the_source_with_one_change() -> None:
    mutants = {(m.before, m.after): m for m in mutants_of(TOY, "toy.py")}
    swapped = mutants["self.width * 2", "self.width / 2"]
    assert (swapped.function, swapped.line, swapped.unit) == ("Box.size", 24, ("Box.size", 22))
    space: dict = {}
    exec(mutated_code(TOY, swapped, "toy.py"), space)
    assert space["Box"](3).size == 1.5
    assert space["clip"](1) == 1
    code = function_code(mutated_code(TOY, swapped, "toy.py"), ("Box.size", 22))
    assert code is not None
    assert code.co_name == "size"
    constant = mutants["3", "4"]
    assert (constant.function, constant.unit) == ("", None)


@pytest.mark.parametrize(
    ("source", "before"),
    [
        ("x: int | None = f(lambda: 1)", {"1"}),
        ("for a, b in zip(x, y, strict=True): g(a)", {"zip(x, y, strict=True)", "g(a)"}),
        ("assert x == 1", set()),
        ("isinstance(x, int | str)", {"isinstance(x, int | str)"}),
        ("@op('name', paper='address', colour='red')\ndef f(): pass", {"'name'"}),
        ("y = [a for a in x if a]", {"a"}),
        ("import warnings\nwarnings.warn('text')", {"warnings.warn('text')"}),
        ("def f():\n    while g():\n        break", {"g()", "break"}),
        ("def f(x):\n    x = g(x)\n    y = g(x)\n    y.z = 1", {"x = g(x)", "y.z = 1", "1"}),
        ("def f(x):\n    x += -1", {"x += -1", "-1", "1"}),
        ("def __rich__(self): return 1", set()),
        ("if TYPE_CHECKING:\n    x = 1", set()),
        ("@dataclass(frozen=True, eq=False)\nclass A: pass", {"False"}),
        ("y = f(frozen=True, advice='do so')", {"True"}),
    ],
)
def test_what_is_changed(source: str, before: set[str]) -> None:
    found = mutants_of(source, "some.py")
    assert {mutant.before for mutant in found} == before
    for mutant in found:
        mutated_code(source, mutant, "some.py")


def test_a_test_kills_what_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes of their own: of a toy project, by a test that sees, one that is blind."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "experiments")
    import mutation

    rooms = {}
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "toy.py").write_text(TOY)
    for name, text in TESTS.items():
        (tmp_path / f"test_{name}.py").write_text(dedent(text))
        rooms[name] = mutation.Room(("src/toy.py",), (f"test_{name}.py",))
    answers = mutation.try_rooms(rooms, workers=2, sample=0, seed=0, root=tmp_path)
    rows = {name: mutation.row(name, *answers[name], {}) for name in rooms}
    missed = [(m["before"], m["after"]) for m in rows["seeing"]["survivors"]]
    assert missed == [("value < low", "value <= low")]
    assert rows["seeing"]["killed"] == rows["seeing"]["mutants"] - 1
    assert [m["line"] for m in rows["seeing"]["survivors"]] == [13]
    assert rows["failing"]["killed"] < rows["failing"]["mutants"] / 3
    assert rows["failing"]["tests"] == 1
    assert sorted(rows["failing"]["left_out"].values()) == [
        "failed without a change",
        "failed without a change in a trial",
        "skipped without a change",
    ]
    assert sorted(path.name for path in (tmp_path / "src").glob("*.py")) == ["toy.py"]
    turned = ("if value < low:", "value < low", "value <= low")
    listed = {("src/toy.py", "clip", *turned): "the value is then low itself"}
    counted = mutation.row("seeing", *answers["seeing"], listed)
    assert counted["score"] > counted["raw_score"] == rows["seeing"]["raw_score"]
    wrong = {("src/toy.py", "clip", "return low", "return low", "return None"): "a mistake"}
    assert mutation.row("seeing", *answers["seeing"], wrong)["wrongly_listed"]


def test_the_rooms_are_there_and_what_is_listed_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "experiments")
    import mutation

    for room in mutation.ROOMS.values():
        assert mutation.sources_of(room)
        assert not [test for test in room.tests if not (ROOT / test).exists()]
    listed = mutation.read_equivalent(mutation.EQUIVALENT)
    assert not mutation.stale_entries(mutation.ROOMS, listed)
    assert mutation.stale_entries(mutation.ROOMS, [("src/none.py", "f", "x = 1", "1", "2")])


def test_a_sample_follows_from_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "experiments")
    import mutation

    room = mutation.ROOMS["pruning"]
    chosen = []
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / folder).mkdir()
        order = mutation.room_order("pruning", room, (0, 1), tmp_path / folder, 20, seed, ROOT)
        chosen.append(order.chosen)
        assert len(order.mutants) == 20
    assert chosen[0] == chosen[1] != chosen[2]
