"""Small files that ask for much are refused before anything is allocated; large ones are read."""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia import limits
from intarsia.artifacts import open_modules
from intarsia.composition.operators.registry import OPERATORS
from intarsia.errors import FileError, LimitError, RecipeError
from intarsia.files import canonical
from intarsia.limits import Limits, account, allocating, current, limited
from intarsia.models import initialise
from intarsia.modules import Bank, Module, file, header
from small_modules import small_module

CLASSES = ("a", "b", "c")


def pruned(hidden: Sequence[int], kept: int = 0, shape: Sequence[int] = (4,)) -> tuple[Any, ...]:
    """An MLP's header entries and stored tensors: the first `kept` entries of each tensor, 1."""
    architecture = {
        "model": {"name": "mlp", "arguments": {"hidden": list(hidden)}},
        "shape": list(shape),
        "outputs": len(CLASSES),
    }
    plan = header._architecture(architecture).plan()
    table = {n: {"encoding": "gaps", "shape": list(entry.shape)} for n, entry in plan.items()}
    stored: dict[str, torch.Tensor] = {}
    for name in plan:
        stored[f"{name}/values"] = torch.ones(kept)
        stored[f"{name}/gaps"] = torch.zeros(kept, dtype=torch.uint8)
    return architecture, table, stored


def fields(name: str, architecture: Any, table: Any, **others: Any) -> dict[str, Any]:
    own = {"name": name, "architecture": architecture, "tensors": table}
    scaling = {"kind": "none", "shift": 0.0, "scale": 1.0}
    known = {"rewarded": ["a"], "catalogue": list(CLASSES), "scaling": scaling}
    return {**own, **known, "temperature": 1.0, "origin": "o", "provenance": {}, **others}


def write_module(path: Path, hidden: Sequence[int], **others: Any) -> Path:
    architecture, table, stored = pruned(hidden)
    file.write(path, "intarsia-module", fields("m", architecture, table, **others), stored)
    return path


def write_composition(
    path: Path, operator: str, count: int, hidden: Sequence[int], kept: int = 1
) -> Path:
    architecture, table, stored = pruned(hidden, kept)
    parts = [fields(f"m{i}", architecture, table) for i in range(count)]
    tensors = {f"{i}/{n}": t.clone() for i in range(count) for n, t in stored.items()}
    spec = {"operator": {"name": operator, "arguments": {}}, "parts": parts}
    file.write(path, "intarsia-composition", spec, tensors)
    return path


@pytest.fixture
def nothing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of a module is made."""

    def decode(*_: Any) -> None:
        raise AssertionError("memory was taken first")

    monkeypatch.setattr(header, "decode", decode)


@pytest.mark.usefixtures("nothing_made")
def test_a_thousand_bytes_cannot_ask_for_gigabytes(tmp_path: Path) -> None:
    path = write_module(tmp_path / "wide.safetensors", [20_000_000])
    assert path.stat().st_size < 1500
    with pytest.raises(FileError) as refusal:
        Module.load(path)
    text = str(refusal.value)
    assert str(path) in text
    assert "'memory' is 1.5 GiB" in text
    assert "intarsia.limited(memory='2GiB')" in text
    assert "INTARSIA_LIMITS=memory='2GiB'" in text


@pytest.mark.usefixtures("nothing_made")
def test_the_parts_of_a_composition_have_one_account(tmp_path: Path) -> None:
    """One part alone would fit."""
    with limited(memory="20 MiB"), pytest.raises(FileError, match="'memory'"):
        ia.Composition.load(write_composition(tmp_path / "c", "logits", 10, [400_000]))


def test_the_modules_of_a_bank_have_one_account(tmp_path: Path) -> None:
    paths = []
    for name in "ab":
        architecture, table, stored = pruned([100_000])
        content = fields(name, architecture, table)
        file.write(tmp_path / f"{name}.safetensors", "intarsia-module", content, stored)
        paths.append(tmp_path / f"{name}.safetensors")
    digests = [Module.load(path, quiet=True).digest for path in paths]
    files = [{"file": p.name, "digest": d} for p, d in zip(paths, digests, strict=True)]
    listing = {"format": "intarsia-bank", "version": 1, "files": files}
    content = canonical({**listing, "diverged": [], "report": {}}).encode()
    (tmp_path / "bank.json").write_bytes(content)
    assert len(Bank.load(tmp_path, quiet=True)) == 2
    with limited(memory="11 MiB"):
        Module.load(paths[0], quiet=True)
        with pytest.raises(FileError, match=r"b\.safetensors: .*'memory' is 11"):
            Bank.load(tmp_path, quiet=True)
        with pytest.raises(FileError, match=r"b\.safetensors: .*'memory'"):
            open_modules(paths)
    with limited(parts=1), pytest.raises(FileError, match="lists 2 modules, and the limit 'parts'"):
        Bank.load(tmp_path, quiet=True)


def test_a_small_inlay_cannot_ask_for_gigabytes(tmp_path: Path) -> None:
    """Block diagonal tensors have the square of entries; all of them are alive."""
    architecture, table, stored = pruned([900, 900], kept=900)
    step = torch.full((900,), 900, dtype=torch.int32).to(torch.uint16)  # the diagonal
    step[0] = 0
    stored["layers.1.weight/gaps"] = step
    parts = [fields(f"m{i}", architecture, table) for i in range(32)]
    tensors = {f"{i}/{n}": t.clone() for i in range(32) for n, t in stored.items()}
    spec = {"operator": {"name": "inlay", "arguments": {}}, "parts": parts}
    path = tmp_path / "inlay.safetensors"
    file.write(path, "intarsia-composition", spec, tensors)
    assert path.stat().st_size < 10**6
    with pytest.raises(FileError, match=r"joining 32 modules takes 1\d\.\d GiB .*'memory' is 1\.5"):
        ia.Composition.load(path)


def test_many_class_names_take_no_time(tmp_path: Path) -> None:
    names = [f"class {i}" for i in range(100_000)]
    architecture, table, stored = pruned([1])
    architecture["outputs"] = len(names)
    table["layers.1.weight"]["shape"] = [len(names), 1]
    others = {"catalogue": names, "rewarded": names}
    path = tmp_path / "names.safetensors"
    file.write(path, "intarsia-module", fields("m", architecture, table, **others), stored)
    with pytest.raises(FileError, match="100000 classes, and the limit 'classes' is 10000"):
        Module.load(path)
    start = time.process_time()
    with limited(classes=100_000):
        assert Module.load(path, quiet=True).rewarded == tuple(names)
    assert time.process_time() - start < 10  # it was minutes


def test_a_composition_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "parts.safetensors"
    spec = {"operator": {"name": "logits", "arguments": {}}, "parts": [{}] * 1001}
    file.write(path, "intarsia-composition", spec, {})
    with pytest.raises(FileError, match="has 1001 parts, and the limit 'parts' is 1000"):
        ia.Composition.load(path)
    state = dict(initialise("mlp(1)", (1,), 3, seed=0).state_dict())
    modules = [small_module(c, state, {}, CLASSES, "mlp(1)", (1,)) for c in "abc"]
    with limited(parts=2), pytest.raises(LimitError, match="3 modules are to be joined"):
        ia.compose(modules, "sum")


def test_a_header_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = write_module(tmp_path / "m.safetensors", [1], provenance={"note": "x" * 5000})
    Module.load(path, quiet=True)
    words = r"has a header of .* KiB, and the limit 'header' is 3\.9 KiB"
    with limited(header=4000), pytest.raises(FileError, match=words):
        Module.load(path, quiet=True)


def test_what_is_large_itself_may_take_much(tmp_path: Path) -> None:
    """Room grows with the size of the file, so that no honest one needs a setting."""
    network = initialise("mlp(2000)", (500,), 3, seed=0)
    state = dict(network.state_dict())
    module = small_module("a", state, {}, CLASSES, "mlp(2000)", (500,))
    module.save(tmp_path / "large.safetensors")
    with limited(memory="1 MiB"):
        assert Module.load(tmp_path / "large.safetensors").digest == module.digest
        assert len(ia.compose([module], "sum").parts) == 1


def test_a_hundred_modules_need_no_setting(tmp_path: Path) -> None:
    """The paper's networks on MNIST, one per class of a hundred, counted and not made."""
    write_module(tmp_path / "m.safetensors", [512], provenance={})
    module = Module.load(tmp_path / "m.safetensors", quiet=True)
    one = module.nbytes * 784 / 4
    held = 100 * one
    with account() as taken:
        taken.read(100 * 20_000)  # bytes of such a file
        taken.take("reading takes {}", int(held), passing=int(3 * one))
        taken.take("joining takes {}", int(held), passing=0)


@pytest.mark.parametrize("operator", ["sum", "ties", "dare", "fisher", "regmean", "logits"])
def test_every_way_of_joining_is_counted(operator: str) -> None:
    state = dict(initialise("mlp(64)", (30,), 3, seed=0).state_dict())
    modules = [
        small_module(c, state, {}, CLASSES, "mlp(64)", (30,), provenance={"seed": 0})
        for c in CLASSES
    ]
    with limited(memory=1000), account() as taken:
        taken.room = 1  # as if they were being read
        with pytest.raises(LimitError, match=r"joining 3 modules takes .* KiB of memory"):
            ia.compose(modules, operator, samples=np.ones((4, 30), np.float32))


def test_gram_matrices_are_counted() -> None:
    """Of an input of 60,000 features one has 27 GiB."""
    architecture, table, stored = pruned([1], shape=(60_000,))
    values = header.unpack(fields("m", architecture, table), stored, None)
    context = ia.composition.MergeContext((Module(**values),))
    assert OPERATORS["regmean"].memory(context) > 100 * 2**30


def test_wide_layers_are_not_aligned(make_pair: list[Module]) -> None:
    with limited(units=8), pytest.raises(LimitError, match=r"16 units .*the limit 'units' is 8"):
        ia.compose(make_pair, "sum", align="weights")


@pytest.fixture
def make_pair() -> list[Module]:
    state = dict(initialise("mlp(16)", (4,), 3, seed=0).state_dict())
    return [small_module(c, state, {}, CLASSES, "mlp(16)", (4,)) for c in "ab"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((2**40,), np.dtype("f8")),  # type: ignore[attr-defined]
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_an_allocator_that_gives_no_more_is_our_error(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_pair: list[Module]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    path = write_module(tmp_path / "m.safetensors", [1])
    monkeypatch.setattr(header, "decode", fail)
    with pytest.raises(FileError, match="more memory than this machine has"):
        Module.load(path)
    monkeypatch.setattr("intarsia.composition.composition.build_merge", fail)
    with pytest.raises(LimitError, match="more memory than this machine has"):
        ia.compose(make_pair, "sum")
    with pytest.raises(RuntimeError, match="other"), allocating("it"):
        raise RuntimeError("some other fault")


def test_limits_are_set_for_a_while_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current() == Limits()
    with limited(memory="16 GiB", classes=5) as inner:
        assert (inner.memory, inner.classes, inner.parts) == (16 * 2**30, 5, Limits().parts)
        with limited(Limits.upload()):
            assert current() == Limits.upload()
        assert current() == inner
    monkeypatch.setenv(limits.VARIABLE, "memory=2.5GiB, parts=7")
    assert (current().memory, current().parts) == (5 * 2**29, 7)
    monkeypatch.setenv(limits.VARIABLE, ",memory=3k  parts=7\n")
    assert (current().memory, current().parts) == (3 * 2**10, 7)
    for wrong, message in {
        "memory": "^INTARSIA_LIMITS has 'memory': expected some of memory, per_byte",
        "parts=3,memorie=3": "^INTARSIA_LIMITS has 'memorie=3': expected some of",
        "advice=none": "^INTARSIA_LIMITS has 'advice=none'",
        "memory=much": "^the limit 'memory' is 'much': expected a number above 0",
        "memory=1=2": "^the limit 'memory' is '1=2'",
        "parts=0": "^the limit 'parts' is '0'",
        "parts=-1": "^the limit 'parts' is '-1'",
    }.items():
        monkeypatch.setenv(limits.VARIABLE, wrong)
        with pytest.raises(RecipeError, match=message):
            current()
    monkeypatch.delenv(limits.VARIABLE)
    with pytest.raises(RecipeError, match="did you mean 'memory'"), limited(memori=1):
        pass


def test_uploads_have_lower_limits_and_other_advice(tmp_path: Path) -> None:
    assert all(getattr(Limits.upload(), n) <= getattr(Limits(), n) for n in limits.NAMES)
    path = write_module(tmp_path / "m.safetensors", [5_000_000])
    with limited(Limits.upload()), pytest.raises(FileError, match="too much for an upload"):
        Module.load(path)


def test_the_guide_has_the_limits_as_they_are() -> None:
    guide = (Path(__file__).parents[1] / "docs" / "guide" / "modules.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", guide, re.MULTILINE)
    stated = {name: (default, upload) for name, default, upload in rows if name in limits.NAMES}
    assert list(stated) == list(limits.NAMES)
    for name, values in stated.items():
        for value, of in zip(values, (Limits(), Limits.upload()), strict=True):
            with limited(**{name: value.replace(",", "")}) as read:
                assert getattr(read, name) == getattr(of, name), name


@pytest.mark.parametrize(
    ("text", "size"),
    [("2k", 2**11), ("2 KiB", 2**11), ("3m", 3 * 2**20), ("1 GiB", 2**30), ("1t", 2**40), (7, 7)],
)
def test_sizes_are_written_as_people_do(text: str | int, size: int) -> None:
    with limited(memory=text) as limits:
        assert limits.memory == size


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may not say")
def test_the_machine_says_how_much_memory_it_has() -> None:
    assert 2**28 < limits.machine_memory() < 2**50


def test_a_machine_that_does_not_say_has_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr("os.sysconf", refuse)
    assert limits.machine_memory() == 0


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("memory", 1023, "it takes 1023 bytes, and the limit 'memory' is 1.5 GiB: "),
        ("memory", 2**10, "it takes 1.0 KiB, "),
        ("memory", 2**20 - 1, "it takes 1024.0 KiB, "),
        ("memory", 2**20, "it takes 1.0 MiB, "),
        ("memory", 2**30, "it takes 1.0 GiB, "),
        ("memory", 2**30, "intarsia.limited(memory='1GiB')"),
        ("memory", 2**30 + 1, "intarsia.limited(memory='2GiB')"),
        ("header", 2**23, "it takes 8.0 MiB, and the limit 'header' is 8.0 MiB: "),
        ("header", 2**23, "intarsia.limited(header=8388608)"),
        ("parts", 2**10, "it takes 1024, and the limit 'parts' is 1000: "),
    ],
)
def test_a_refusal_says_how_much_and_what_would_do(name: str, asked: int, words: str) -> None:
    assert words in str(Limits().refusal(name, asked, "it takes {}"))


def test_a_refusal_says_the_number_once() -> None:
    text = str(Limits().refusal("parts", 5, "{} parts of 'a{}b'", allowed=4))
    assert text.startswith("5 parts of 'a{}b', and the limit 'parts' is 4: ")


def test_what_is_at_the_limit_is_allowed() -> None:
    limits = Limits(parts=5)
    limits.check("parts", 5, "{} parts")
    with pytest.raises(LimitError, match=r"^6 parts, and the limit 'parts' is 5"):
        limits.check("parts", 6, "{} parts")


def test_an_account_counts_what_stays_and_looks_at_what_passes() -> None:
    with limited(memory=100, per_byte=3), account() as taken:
        taken.take("{}", 60, passing=40)
        with account() as inner:
            assert inner is taken
        with pytest.raises(LimitError, match=r"^101 bytes, and the limit 'memory' is 100 bytes"):
            taken.take("{}", 10, passing=31)
        assert taken.held == 60
        taken.read(20)
        taken.read(20)
        taken.take("{}", 60)  # as much as the files give room for
        with pytest.raises(LimitError, match="'memory' is 120 bytes"):
            taken.take("{}", 1)
    with account() as other:
        assert other is not taken
        assert (other.room, other.held) == (0, 0)


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate"), True),
        (RuntimeError("CUDA out of memory"), True),
        (RuntimeError("Can't allocate memory"), True),
        (RuntimeError("another fault"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_allocators_are_known_by_their_words(error: Exception, is_memory: bool) -> None:
    assert limits.out_of_memory(error) == is_memory


@pytest.mark.parametrize("value", [1, 2**63 - 1, "1", "9" * 12, "0.5k", "1.123456k", "2 mb"])
def test_numbers_that_limits_may_be(value: int | str) -> None:
    with limited(memory=value) as changed:
        assert type(changed.memory) is int


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**63, True, 5.0, None, "0", "0.0k", "-1", "9" * 13, "1.1234567k", "2 xb", "", "1kk"],
)
def test_what_is_no_limit_is_refused(value: Any) -> None:
    with pytest.raises(RecipeError, match=r"^the limit 'memory' is "), limited(memory=value):
        pass


def test_advice_is_no_limit_to_set() -> None:
    changes: Any = {"advice": "none"}
    with pytest.raises(RecipeError, match="there is no limit 'advice'"), limited(**changes):
        pass
    with pytest.raises(RecipeError), limited(Limits.upload(), parts=0):
        pass
    with limited(Limits.upload(), parts=3) as changed:
        assert changed == Limits(**{**vars(Limits.upload()), "parts": 3})
