"""Banks: order, lookup, seeds, and a folder on any file system."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from damage import flip
from intarsia.errors import DamagedError, FileError, FileWarning, RecipeError
from intarsia.files import sealed
from intarsia.modules import Bank, Module, file_name

Make = Callable[..., Module]


@pytest.fixture
def bank(make_module: Make) -> Bank:
    modules = [
        make_module(name=f"{c}-s{seed}", rewarded=(c,), seed=seed)
        for seed in (0, 1)
        for c in ("3", "1")
    ]
    return Bank(modules, diverged=["2-s0", "2-s1"], report={"engine": "loop", "sizes": (1, 2)})


def test_order_and_lookup(bank: Bank) -> None:
    assert bank.names == ("3-s0", "1-s0", "3-s1", "1-s1")
    assert [m.name for m in bank] == list(bank.names)
    assert bank["1-s1"] is bank[3] is bank[-1]
    assert bank.seeds == (0, 1)
    assert bank[:2].names == bank.names[:2]


def test_classes_alone_where_unique(bank: Bank) -> None:
    with pytest.raises(RecipeError, match=r"2 modules recognise '3': 3-s0, 3-s1"):
        bank["3"]
    one = bank.seed(1)
    assert one["3"] is bank["3-s1"]
    bank.rounds = (Bank(list(bank)[::-1]),)
    assert bank.seed(0).rounds[0].names == ("1-s0", "3-s0")
    assert (one.names, one.diverged) == (("3-s1", "1-s1"), ("2-s1",))


def test_unknown_modules_are_explained(bank: Bank) -> None:
    with pytest.raises(RecipeError, match="did you mean '1-s1'"):
        bank["11-s1"]
    with pytest.raises(RecipeError, match="there is no number 4"):
        bank[4]
    with pytest.raises(RecipeError, match="no module of seed 7"):
        bank.seed(7)


def test_two_modules_of_one_name(module: Module) -> None:
    with pytest.raises(RecipeError, match="two modules called '2'"):
        Bank([module, module])


def test_folder_round_trip(bank: Bank, tmp_path: Path) -> None:
    bank.save(tmp_path / "out")
    loaded = Bank.load(tmp_path / "out")
    assert [m.digest for m in loaded] == [m.digest for m in bank]
    assert (loaded.names, loaded.diverged, loaded.report) == (
        bank.names,
        bank.diverged,
        bank.report,
    )
    assert Bank.report_of(tmp_path / "out") == bank.report
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {*(f"{n}.safetensors" for n in bank.names), "bank.json"}


def test_class_names_become_file_names(make_module: Make, tmp_path: Path) -> None:
    catalogue = ("T-shirt/top", "a", "A", "ü", "..", "con", "x" * 300, " ")
    modules = [make_module(name=c, catalogue=catalogue) for c in catalogue]
    Bank(modules).save(tmp_path)
    assert Bank.load(tmp_path).names == catalogue
    written = [path.name for path in tmp_path.iterdir()]
    assert len({name.lower() for name in written}) == len(catalogue) + 1
    assert all(len(name) < 120 and name.isascii() for name in written)
    assert file_name("3+5-s0") == "3+5-s0.safetensors"
    odd = [file_name(os.fsdecode(name)) for name in (b"\xff", b"\xfe")]  # not UTF-8
    assert odd[0] != odd[1]
    assert all(name.isascii() for name in odd)


def test_replaced_module_is_noticed(bank: Bank, make_module: Make, tmp_path: Path) -> None:
    bank.save(tmp_path)
    make_module(name="3-s0", rewarded=("3",), seed=5).save(tmp_path / "3-s0.safetensors")
    with pytest.raises(FileError, match=r"is not the module that bank\.json lists"):
        Bank.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "another version"),
        ({"files": [{"file": "../3.safetensors", "digest": ""}]}, "not a file of this folder"),
        ({"files": [{"file": "gone.safetensors", "digest": ""}]}, "no such file"),
        ({"files": [3]}, "3 is not a file"),
        ({"files": {}}, "lists no files"),
        ({"files": [{"file": 3, "digest": ""}]}, "expected text"),
        ({"diverged": "x"}, "expected a list of text"),
        ({"more": 1}, "unknown more"),
    ],
)
def test_listing_is_checked(
    bank: Bank, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    bank.save(tmp_path)
    listing = tmp_path / "bank.json"
    content = json.loads(listing.read_text()) | change
    del content["digest"]
    listing.write_bytes(sealed(content))
    with pytest.raises(FileError, match=message):
        Bank.load(tmp_path)


def test_no_bit_of_the_listing_changes_what_is_loaded(bank: Bank, tmp_path: Path) -> None:
    bank.save(tmp_path)
    listing = tmp_path / "bank.json"
    content = listing.read_bytes()
    for place in range(0, 8 * len(content), 41):
        listing.write_bytes(content)
        flip(listing, place // 8, place % 8)
        with pytest.raises(FileError, match=r"bank\.json"):
            Bank.report_of(tmp_path)


def test_a_flipped_bit_of_a_module_is_named(bank: Bank, tmp_path: Path) -> None:
    bank.save(tmp_path)
    flip(tmp_path / "1-s0.safetensors", -5, bit=4)
    with pytest.raises(DamagedError, match=r"1-s0\.safetensors: was altered or damaged"):
        Bank.load(tmp_path)


def test_a_listing_without_a_digest_is_read_with_a_warning(bank: Bank, tmp_path: Path) -> None:
    bank.save(tmp_path)
    listing = tmp_path / "bank.json"
    content = json.loads(listing.read_text())
    del content["digest"]
    listing.write_text(json.dumps(content))
    with pytest.warns(FileWarning, match=r"bank\.json has no digest"):
        assert Bank.load(tmp_path).names == bank.names
    assert Bank.load(tmp_path, quiet=True).names == bank.names


def test_folder_without_a_bank(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"bank.json: No such file.*Bank.save"):
        Bank.load(tmp_path)
    (tmp_path / "bank.json").write_text("[")
    with pytest.raises(FileError, match="not a JSON object"):
        Bank.load(tmp_path)


def test_a_pipe_as_listing_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bank.json")
    with pytest.raises(FileError, match=r"bank\.json: is not a file"):
        Bank.load(tmp_path)
