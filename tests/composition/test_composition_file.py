"""A composition's file: what is written, what is left out, and every fault explained."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from intarsia.composition import Composition, MergeContext, compose
from intarsia.composition.merge_context import ROWS
from intarsia.data import Split
from intarsia.errors import FileError
from intarsia.files import canonical, digest_of

Make = Callable[..., MergeContext]


@pytest.fixture
def whole(make_context: Make, tmp_path: Path) -> Path:
    """The file of three modules, added."""
    compose(make_context().parts, "sum").save(tmp_path / "whole")
    return tmp_path / "whole"


def read_parts(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with safetensors.safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["intarsia"])
    return header, safetensors.torch.load_file(path)


def write_parts(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """With a digest that fits, so that the fault itself must be found."""
    header.pop("digest", None)
    header["digest"] = digest_of(header, tensors)
    path.write_bytes(safetensors.torch.save(tensors, {"intarsia": canonical(header)}))


def test_the_file_holds_the_parts_and_what_is_not_the_default(whole: Path) -> None:
    header, tensors = read_parts(whole)
    assert (header["format"], header["version"]) == ("intarsia-composition", 1)
    assert header["operator"]["name"] == "sum"
    assert [part["name"] for part in header["parts"]] == ["a", "b", "c"]
    assert header.keys() == {"format", "version", "digest", "operator", "parts"}
    assert header["operator"]["arguments"] == {}
    assert {name.partition("/")[0] for name in tensors} == {"0", "1", "2"}


def test_options_and_samples_come_back(make_context: Make, tmp_path: Path) -> None:
    context = make_context()
    x = torch.randint(0, 256, (8, 6), generator=torch.Generator().manual_seed(0))
    samples = Split(x.to(torch.uint8), torch.arange(8) % 4)
    merged = compose(context.parts, "regmean", samples=samples, recalibrate=False)
    merged.save(tmp_path / "merged")
    header, tensors = read_parts(tmp_path / "merged")
    assert header["options"]["recalibrate"] is False
    assert {"samples/x", "samples/y"} <= tensors.keys()
    loaded = Composition.load(tmp_path / "merged")
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "merged").read_bytes()
    probe = torch.randint(0, 256, (4, 6), dtype=torch.uint8)
    assert torch.equal(loaded(probe), merged(probe))


def test_one_part_comes_back_with_its_samples(make_context: Make, tmp_path: Path) -> None:
    context = make_context(1, samples=5)
    merged = compose(context.parts, "fisher", samples=context.samples)
    merged.save(tmp_path / "one")
    assert Composition.load(tmp_path / "one").report == merged.report


def put_samples(
    x: Tensor | None, y: Tensor | None
) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        given = {"samples/x": x, "samples/y": y}
        tensors.update({name: tensor for name, tensor in given.items() if tensor is not None})

    return change


def labels(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def found(**changes: Any) -> dict[str, Any]:
    """What a file says of a search for a scale, changed."""
    tried = [{"scale": 1.0, "accuracy": 0.5}]
    return {"scale": 1.0, "accuracy": 0.5, "tried": tried, "samples": 3, **changes}


SAMPLES = "its samples are not 1 to"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(options=[]), "'options' are"),
        (lambda h, t: h.update(options={"unheard": 1}), "'options' are"),
        (lambda h, t: h.update(search=3), "'search' is 3"),
        (lambda h, t: h.update(search=found(scale=0.5)), "'search' is"),
        (lambda h, t: h.update(search=found(scale=[])), "'search' is"),
        (lambda h, t: h.update(search=found(samples=1.5)), "'search' is"),
        (lambda h, t: h.update(search=found(more=1)), "'search' is"),
        (lambda h, t: h.update(search={"scale": 1.0}), "'search' is"),
        (lambda h, t: h.update(parts=[h["parts"][0], 3]), "not a list of modules"),
        (lambda h, t: h.update(surprise=1), "unknown .*surprise"),
        (lambda h, t: h.pop("operator"), "lacks operator"),
        (lambda h, t: h.update(operator=None), "its header names no operator"),
        (lambda h, t: h.update(operator=3), "'operator' is 3, expected a mapping"),
        (lambda h, t: h.update(parts={"0": {}}), "not a list of modules"),
        (lambda h, t: t.update({"3/x": torch.ones(1)}), "holds the tensor '3/x' of no part"),
        (lambda h, t: t.update({"0x": torch.ones(1)}), "holds the tensor '0x' of no part"),
        (lambda h, t: t.update({"0/x/y": torch.ones(1)}), "holds the tensor 'x/y', against"),
        (lambda h, t: h["parts"][1].update(name="a"), "has two parts of one name"),
        (lambda h, t: h.pop("parts"), "lacks parts"),
        (lambda h, t: h["operator"].update(arguments=[]), "operator.arguments"),
        (put_samples(torch.ones(3, 6), None), f"{SAMPLES} {ROWS} inputs with a label each"),
        (put_samples(None, labels(3)), SAMPLES),
        (put_samples(torch.ones(0, 6), labels(0)), SAMPLES),
        (put_samples(torch.ones(3, 6), labels(2)), SAMPLES),
        (put_samples(torch.ones(3, 6), labels(3)[:, None]), SAMPLES),
        (put_samples(torch.ones(3, 6), torch.zeros(3)), SAMPLES),
        (put_samples(torch.ones(()), labels(1)), SAMPLES),
        (put_samples(torch.ones(ROWS + 1, 6), labels(ROWS + 1)), SAMPLES),
        (put_samples(torch.ones(3, 5), labels(3)), "another shape"),
        (put_samples(torch.ones(3, 6, 1), labels(3)), "another shape"),
    ],
)
def test_faults_are_explained(
    whole: Path,
    change: Callable[[dict[str, Any], dict[str, Tensor]], Any],
    message: str,
) -> None:
    header, tensors = read_parts(whole)
    change(header, tensors)
    write_parts(whole, header, tensors)
    with pytest.raises(FileError, match=message) as error:
        Composition.load(whole)
    assert str(whole) in str(error.value)


@pytest.mark.parametrize("rows", [1, ROWS])
def test_samples_at_the_edge_are_fine(whole: Path, rows: int) -> None:
    header, tensors = read_parts(whole)
    put_samples(torch.ones(rows, 6), labels(rows))(header, tensors)
    write_parts(whole, header, tensors)
    assert [part.name for part in Composition.load(whole).parts] == ["a", "b", "c"]


def test_a_finding_is_written_for_people_and_not_read(whole: Path) -> None:
    header, tensors = read_parts(whole)
    header["health"] = {"anything": [1, 2]}
    write_parts(whole, header, tensors)
    assert len(Composition.load(whole).parts) == 3


def test_what_is_not_well_is_said_in_the_file(make_context: Make, tmp_path: Path) -> None:
    """For people who look into it; a healthy one says nothing."""
    part, *others = make_context().parts
    dead = replace(part, state={n: 0 * t for n, t in part.state.items()})
    merged = compose([dead, *others], "logits")
    assert not merged.health.ok
    merged.save(tmp_path / "dead")
    header, _ = read_parts(tmp_path / "dead")
    assert header["health"] == merged.health.to_json()


def test_settings_by_part_come_back(make_context: Make, tmp_path: Path) -> None:
    merged = compose(make_context().parts, {"name": "weighted", "weights": {"a": 2.0, "c": 0.5}})
    merged.save(tmp_path / "weighted")
    loaded = Composition.load(tmp_path / "weighted")
    x = torch.randint(0, 256, (4, 6), dtype=torch.uint8)
    assert torch.equal(loaded(x), merged(x))
    assert read_parts(tmp_path / "weighted")[0]["operator"]["arguments"] == {
        "weights": {"a": 2.0, "c": 0.5}
    }


def test_a_module_is_no_composition_and_no_parts_are_none(whole: Path, make_context: Make) -> None:
    header, _ = read_parts(whole)
    given: dict[str, Tensor] = {}
    put_samples(torch.ones(3, 6), labels(3))(header, given)
    write_parts(whole, {**header, "parts": []}, given)
    with pytest.raises(FileError, match="needs at least one module"):
        Composition.load(whole)
    make_context().parts[0].save(whole)
    with pytest.raises(FileError, match=r"read it with Module\.load$"):
        Composition.load(whole)
