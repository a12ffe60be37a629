"""Headers: every field at the edge of what it may be, and just beyond it."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from intarsia.errors import LONGEST, FileError, LimitError
from intarsia.limits import account, limited
from intarsia.modules import Module, header
from intarsia.modules.file import parse, stored_names

LARGEST = 2**31


def unpacked(module: Module, **changes: Any) -> dict[str, Any]:
    """The arguments of a module whose header has these fields changed."""
    fields, tensors = module.packed()
    return header.unpack({**fields, **changes}, tensors, None)


def architecture(module: Module, **changes: Any) -> dict[str, Any]:
    return {**module.packed()[0]["architecture"], **changes}


def test_what_is_packed_is_unpacked(module: Module) -> None:
    arguments = unpacked(module)
    assert Module(**arguments).digest == module.digest
    assert arguments["factory"] is None
    assert (arguments["name"], arguments["temperature"]) == (module.name, module.temperature)
    assert arguments["provenance"] == module.provenance
    assert arguments["scaling"].to_json() == module.scaling.to_json()


def mlp(**arguments: Any) -> dict[str, Any]:
    return {"name": "mlp", "arguments": arguments}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "'name' is 3, expected text"),
        ({"origin": None}, "'origin' is None, expected text"),
        ({"rewarded": "2"}, "'rewarded' is '2', expected a list of text"),
        ({"catalogue": ["0", 1]}, "'catalogue' is .*, expected a list of text"),
        ({"temperature": True}, "'temperature' is True, expected a number"),
        ({"temperature": 1.1e30}, "'temperature' is .*, expected a number"),
        ({"temperature": -1.1e30}, "'temperature' is .*, expected a number"),
        ({"provenance": []}, "'provenance' is .*, expected a mapping"),
        ({"tensors": []}, "'tensors' is .*, expected a mapping"),
        ({"scaling": {"kind": "unit", "shift": 0, "scale": "1"}}, "'scaling.scale' is '1'"),
        ({"scaling": {"kind": "unit", "shift": [None], "scale": 1}}, "'scaling.shift' is None"),
        ({"scaling": {"kind": "unit", "shift": 0}}, "lacks scale"),
        ({"architecture": None}, "'architecture' is None, expected a mapping"),
    ],
)
def test_fields_of_another_type_are_refused(
    module: Module, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        unpacked(module, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": []}, r"'architecture.shape' is \[\], expected a list of one to eight sizes"),
        ({"shape": [1] * 9}, "a list of one to eight sizes"),
        ({"shape": 6}, "a list of one to eight sizes"),
        ({"shape": [0]}, "'architecture.shape' is 0, expected a whole number from 1"),
        ({"shape": [True]}, "a whole number from 1"),
        ({"shape": [LARGEST + 1]}, f"a whole number from 1 to {LARGEST}"),
        (
            {"shape": [2**14, 2**14 + 1]},
            r"'architecture.shape' is .*, expected at most 268435456 entries",
        ),
        ({"outputs": 0}, "'architecture.outputs' is 0"),
        ({"outputs": LARGEST + 1}, "'architecture.outputs'"),
        ({"widths": {}}, "'architecture.widths' is {}, expected one to 4096 axes, or no such"),
        ({"widths": {str(i): 1 for i in range(4097)}}, "one to 4096 axes"),
        ({"widths": {"layers.0": 0}}, "'architecture.widths' is 0, expected a whole number"),
        ({"widths": [8]}, "'architecture.widths' is .*, expected a mapping"),
        ({"probe": []}, r"'architecture.probe' is \[\], expected a list of at most 256 numbers"),
        ({"probe": [0.0] * 257}, "a list of at most 256 numbers"),
        ({"probe": 1.0}, "a list of at most 256 numbers"),
        ({"probe": ["x"]}, "'architecture.probe' is 'x', expected a number"),
        ({"more": 1}, "has the unknown .*more"),
        ({"model": "mlp"}, "'architecture.model' is 'mlp', expected a mapping"),
        ({"model": {"name": "mlp"}}, "lacks arguments"),
        ({"model": {"name": 3, "arguments": {}}}, "'architecture.model.name' is 3"),
        ({"model": {"name": "mlp", "arguments": []}}, "'architecture.model.arguments'"),
        ({"model": mlp(a=LARGEST + 1)}, "architecture.model.a"),
        ({"model": mlp(a=LARGEST + 0.5)}, "architecture.model.a"),
        ({"model": mlp(a=[-LARGEST - 1])}, "architecture.model.a"),
        ({"model": mlp(a=[1] * 257)}, "a list of at most 256"),
        ({"model": mlp(a=[[1]])}, "architecture.model.a"),
        ({"model": mlp(a={"b": 1})}, "architecture.model.a"),
    ],
)
def test_architectures_beyond_what_files_may_ask_for(
    module: Module, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        unpacked(module, architecture=architecture(module, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": [1] * 8}, "its network needs"),
        ({"shape": [2**14, 2**14]}, "its network needs"),
        ({"shape": [1]}, "its network needs"),
        ({"outputs": 1}, "its network needs"),
        ({"widths": {"none": LARGEST}}, "cannot be built"),
        ({"widths": {str(i): 1 for i in range(4096)}}, "cannot be built"),
        ({"model": mlp(hidden=[LARGEST] * 256)}, "cannot be built"),
        ({"model": mlp(hidden=[-LARGEST, None, "", 0.5])}, "cannot be built"),
    ],
)
def test_architectures_at_the_edge_are_only_refused_by_their_network(
    module: Module, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError, match=message):
        unpacked(module, architecture=architecture(module, **changes))


def test_numbers_at_the_edge(module: Module) -> None:
    assert unpacked(module, temperature=1e30)["temperature"] == 1e30
    whole = unpacked(module, temperature=3)["temperature"]
    assert (whole, type(whole)) == (3.0, float)
    probed = unpacked(module, architecture=architecture(module, probe=[0, 0.5]))
    assert probed["architecture"].probe == (0.0, 0.5)


def test_settings_of_an_operator_may_be_given_by_part() -> None:
    value = {"name": "weighted", "arguments": {"weights": {"a": 1.0, "b": 2.0}}}
    made = header.spec(value, "operator", by_part=True)
    assert made is not None
    assert (made.name, made.arguments) == ("weighted", {"weights": {"a": 1.0, "b": 2.0}})
    with pytest.raises(FileError, match=r"operator\.weights"):
        header.spec(value, "operator")
    value["arguments"] = {"weights": {"a": [1] * 257}}
    with pytest.raises(FileError, match=r"operator\.weights"):
        header.spec(value, "operator", by_part=True)
    assert header.spec(None, "operator") is None


def test_keys_are_exactly_the_known_ones() -> None:
    header.check_keys({"a": 1, "b": 2}, ("b", "a"))
    with pytest.raises(FileError, match="its header lacks a, b"):
        header.check_keys({"c": 1}, ("b", "a"))
    with pytest.raises(FileError, match=r"its header has the unknown .*c.*d"):
        header.check_keys({"a": 1, "d": 1, "c": 1}, ("a",))


def test_two_tensors_under_one_name_are_not_written() -> None:
    state = {"a": torch.ones(2), "a/values": torch.ones(2)}
    mask = {"a": torch.tensor([True, False])}
    with pytest.raises(FileError, match="two tensors would be stored as 'a/values'"):
        header.pack(state, mask)
    table, stored = header.pack({"a": torch.ones(2), "b": torch.ones(3)}, mask)
    assert {name: entry["encoding"] for name, entry in table.items()} == {
        "a": "bits",
        "b": "dense",
    }
    assert sorted(stored) == ["a/bits", "a/values", "b"]


def test_a_buffer_is_never_pruned(make_module: Any) -> None:
    module = make_module(model="resnet18(width=2)", shape=(3, 8, 8))
    fields, tensors = module.packed()
    fields["tensors"]["norm.running_mean"]["encoding"] = "gaps"
    with pytest.raises(FileError, match=r"'norm\.running_mean' is a buffer and cannot be pruned"):
        header.unpack(fields, tensors, None)


def test_names_under_which_tensors_are_stored() -> None:
    assert stored_names("w", "dense") == ("w",)
    assert stored_names("w", "bits") == ("w/values", "w/bits")
    assert stored_names("w", "gaps") == ("w/values", "w/gaps")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": Infinity}',
        '{"a": -Infinity}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        "[1]",
        "{",
    ],
)
def test_json_that_is_not_ours(text: str) -> None:
    with pytest.raises(FileError, match="its header is not a JSON object"):
        parse(text, "header")


def test_json_that_is_ours() -> None:
    expected = {"a": "é", "b": {"a": [1, 2.5, None]}}
    assert parse('{"a": "é", "b": {"a": [1, 2.5, null]}}', "header") == expected


def test_memory_is_counted_to_the_byte(module: Module) -> None:
    """Tensors and masks stay; for a while there are both again, more masks, and places."""
    fields, tensors = module.packed()
    entries = 8 * 6 + 8 + 4 * 8
    assert {entry["encoding"] for entry in fields["tensors"].values()} != {"dense"}
    assert sum(tensor.numel() for tensor in module.state.values()) == entries
    stays = 4 * entries + entries
    passing = 4 * entries + 3 * entries + 8 * sum(tensor.nbytes for tensor in tensors.values())
    with limited(memory=stays + passing), account() as taken:
        header.unpack(fields, tensors, None)
        assert taken.held == stays
    words = r"^its tensors and their copies take .* of memory, and the limit 'memory'"
    with limited(memory=stays + passing - 1), pytest.raises(LimitError, match=words):
        header.unpack(fields, tensors, None)


def test_what_is_not_pruned_has_no_mask_to_count(make_module: Any) -> None:
    module = replace(make_module(), mask={})
    fields, tensors = module.packed()
    with account() as taken:
        header.unpack(fields, tensors, None)
    assert taken.held == 4 * (8 * 6 + 8 + 4 * 8)


def test_of_several_faults_the_first_by_name_is_told(module: Module) -> None:
    fields, tensors = module.packed()
    first, last = min(tensors), max(tensors)
    fewer = {name: tensor for name, tensor in tensors.items() if name not in (first, last)}
    with pytest.raises(FileError, match=rf"^lacks the tensor '{first}', against its own table"):
        header.unpack(fields, fewer, None)
    more = {**tensors, "y": torch.ones(1), "x": torch.ones(1)}
    with pytest.raises(FileError, match=r"^holds the tensor 'x', against its own table"):
        header.unpack(fields, more, None)
    table = fields["tensors"]
    with pytest.raises(FileError, match=r"^has the tensor 'x' unknown to its network"):
        unpacked(module, tensors={**table, "y": {}, "x": {}})
    names = sorted(table)
    fewer = {name: table[name] for name in names[1:-1]}
    with pytest.raises(FileError, match=rf"^lacks the tensor '{names[0]}' of its network"):
        unpacked(module, tensors=fewer)


def test_the_name_of_an_encoding_is_text(module: Module) -> None:
    table = module.packed()[0]["tensors"]
    name = "layers.0.weight"
    wrong = {**table, name: {**table[name], "encoding": ["gaps"]}}
    with pytest.raises(FileError, match=f"'tensors.{name}' is .*, expected text"):
        unpacked(module, tensors=wrong)
    with pytest.raises(FileError, match=f"'tensors.{name}' is 3, expected a mapping"):
        unpacked(module, tensors={**table, name: 3})


def test_long_lists_of_unknown_keys_are_cut() -> None:
    with pytest.raises(FileError) as error:
        header.check_keys({f"key {i}": 1 for i in range(1000)}, ())
    assert len(str(error.value)) < 2 * LONGEST
