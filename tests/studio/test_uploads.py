"""What the studio opens and takes in: banks, files, demos, uploads, and nothing else."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import intarsia as ia
from intarsia.errors import CompositionError, DataError, FileError, RecipeError
from intarsia.studio import Session, open_paths
from intarsia.studio.uploads import LoadResult, load, load_from_folder, loadable_files


def test_every_kind_of_path_opens(bank: ia.Bank, bank_folder: Path, tmp_path: Path) -> None:
    result = open_paths([bank_folder])
    assert [module.name for module in result.modules] == list(bank.names)
    assert result.like is None
    assert str(result.session(rows=9).operator) == "inlay"
    assert result.notes == ()
    assert result.data.name == "digits"
    assert result.folders == (bank_folder.resolve(),)

    ia.compose(bank, "ties(density=0.4)").save(tmp_path / "whole.safetensors")
    result = open_paths([tmp_path / "whole.safetensors"])
    assert str(result.session(rows=9).operator) == "ties(density=0.4)"
    assert len(result.modules) == 3
    assert result.folders == ()

    files = [bank_folder / "0.safetensors", bank_folder / "3.safetensors"]
    assert [module.name for module in open_paths(files).modules] == ["0", "3"]

    shutil.copytree(bank_folder, tmp_path / "demo" / "modules")
    result = open_paths([tmp_path / "demo"], options={"seed": 1})
    assert len(result.modules) == 3
    assert "is not what" in result.notes[0]  # split otherwise
    assert result.folders == ((tmp_path / "demo").resolve(),)


def test_what_cannot_be_opened_is_told(bank: ia.Bank, bank_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="give the folder that a training run"):
        open_paths([tmp_path])
    with pytest.raises(FileError, match="there is nothing to open"):
        open_paths([])
    with pytest.raises(FileError, match="'0' was read before"):
        open_paths([bank_folder, bank_folder / "0.safetensors"])
    again = replace(bank["0"], name="0-s1", provenance={**bank["0"].provenance, "seed": 1})
    ia.Bank([*bank, again]).save(tmp_path / "two")
    first = open_paths([tmp_path / "two"])
    assert [m.name for m in first.modules] == list(bank.names)
    assert "modules of seed 0, --seed chooses others" in first.notes[0]
    assert [m.name for m in open_paths([tmp_path / "two"], seed=1).modules] == ["0-s1"]
    with pytest.raises(RecipeError, match="no module of seed 2"):
        open_paths([tmp_path / "two"], seed=2)
    ia.Bank([], ["0"]).save(tmp_path / "none")
    with pytest.raises(FileError, match="all of them diverged"):
        open_paths([tmp_path / "none"])
    replace(bank["0"], provenance={}).save(tmp_path / "bare.safetensors")
    with pytest.raises(DataError, match="name the data with --data"):
        open_paths([tmp_path / "bare.safetensors"])
    assert open_paths([tmp_path / "bare.safetensors"], "digits").data.name == "digits"


def test_a_file_is_taken_in_with_the_loaders_checks(
    own_session: Session, bank: ia.Bank, tmp_path: Path
) -> None:
    session, path = own_session, tmp_path / "upload-7f.safetensors"
    replace(bank["3"], name="mine").save(path)
    assert load(session, path, "mine.safetensors").message == "loaded mine; switch it on"
    assert session.names == ("0", "3", "8+9", "mine")
    assert "are here already" in load(session, path, "mine.safetensors").message
    assert session.names == ("0", "3", "8+9", "mine")

    replace(bank["3"], name="far", origin="0" * 64).save(path)
    result = load(session, path)
    assert result.names == (("far", "far"),)
    assert "module 'far' does not fit module '0': its origin is 000" in result.caution
    assert result.caution.endswith("; join it by inlay or logits")

    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(FileError, match=r"^my file: was cut off: "):
        load(session, path, "my file")
    path.write_bytes(b"not a module")
    with pytest.raises(FileError, match=r"^my file: is not a safetensors file"):
        load(session, path, "my file")
    replace(bank["3"], name="hot", temperature=2.0).save(path)
    with pytest.raises(FileError, match=r"^hot.st: module 'hot' does not fit .* temperature"):
        load(session, path, "hot.st")
    assert "hot" not in session.names


def test_a_composition_brings_the_parts_that_are_new(
    bank: ia.Bank, digits: ia.Data, tmp_path: Path
) -> None:
    session = Session([bank["0"]], digits)
    ia.compose(bank, "sum").save(tmp_path / "whole.safetensors")
    result = load(session, tmp_path / "whole.safetensors")
    assert result == LoadResult((("3", "3"), ("8+9", "8+9")))
    bank.save(tmp_path / "bank")
    with pytest.raises(FileError, match="is a folder: give the file of a module"):
        load(session, tmp_path / "bank")


def test_files_come_from_the_given_folder_alone(
    bank: ia.Bank, digits: ia.Data, tmp_path: Path
) -> None:
    given, outside = tmp_path / "given", tmp_path / "outside.safetensors"
    bank.save(given / "more")
    replace(bank["3"], name="outside").save(outside)
    (given / "link.safetensors").symlink_to(outside)
    session = Session([bank["0"]], digits, folders=[given.resolve()])
    # A class of one's own is offered, though its name is taken; not so what is here, or cannot fit.
    ia.compose([bank["0"]], "sum").save(given / "whole.safetensors")
    replace(bank["0"], provenance={}).save(given / "0.safetensors")
    far = replace(bank["0"], catalogue=tuple("abcdefghij"), rewarded=("a",))
    far.save(given / "letters.safetensors")
    known = ["0.safetensors", "more/3.safetensors", "more/8+9.safetensors"]
    assert loadable_files(session) == known
    assert load_from_folder(session, "more/3.safetensors") == LoadResult((("3", "3"),))
    assert load_from_folder(session, "0.safetensors").message.startswith(
        "loaded 0 as '0 (2)', since"
    )
    assert loadable_files(session) == known[2:]
    with pytest.raises(FileError, match=r"^letters.safetensors: .* its catalogue is"):
        load_from_folder(session, "letters.safetensors")
    session.remove("0 (2)")
    assert (session.names, loadable_files(session)) == (("0", "3"), [known[0], known[2]])
    with pytest.raises(CompositionError, match="was here from the start"):
        session.remove("0")
    for name in (
        "../outside.safetensors",
        str(outside),
        "link.safetensors",
        "more/bank.json",
        "more",
        "none.safetensors",
    ):
        with pytest.raises(FileError, match="is not a module file in the folder"):
            load_from_folder(session, name)


def test_a_change_is_taken_in_where_its_base_is_known(
    bank: ia.Bank, digits: ia.Data, tmp_path: Path
) -> None:
    """A browser sends one file, without the base that lay beside it."""
    start = bank["0"]

    def change(name: str) -> ia.Module:
        moved = {**start.state, "layers.0.bias": start.state["layers.0.bias"] + len(name)}
        return ia.Module.of(
            moved, rewarded="3", catalogue=start.catalogue, scaling=start.scaling, name=name,
            shape=start.architecture.shape, model=start.architecture.model, base=start,
        )  # fmt: skip

    path = tmp_path / "sent.safetensors"
    change("second").save(path)
    (tmp_path / "base.safetensors").unlink()
    session = Session([change("first")], digits)
    assert load(session, path).names == (("second", "second"),)
    with pytest.raises(FileError, match="is a change of the base"):
        load(Session([start], digits), path)
