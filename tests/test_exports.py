"""Exports: others' readers give the answers that ours gives, for raw inputs and any batch."""

import json
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from intarsia.composition import OPERATORS, Composition, compose
from intarsia.data import Scaling, Split, load_data
from intarsia.encoders import Encoder
from intarsia.encoders.encoder import PictureEncoder
from intarsia.errors import DataError, FileError, ModelError, RecipeError
from intarsia.exports import Exportable, export, export_program, to_network
from intarsia.files import digest_of
from intarsia.models import initialise
from intarsia.modules import Architecture, Bank, Module
from small_modules import masked, small_module
from tiny_encoder import FEATURES, SHAPE, TinyEncoder, pictures

CATALOGUE = tuple("abcde")
SHAPES = {"mlp(16)": (6,), "lenet": (1, 12, 12), "resnet18(4)": (3, 8, 8), "vgg11(2)": (3, 32, 32)}

pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def part(name: str, model: str, kind: str = "unit", outputs: int = 5) -> Module:
    shape = SHAPES[model]
    network = initialise(model, shape, outputs, seed=0)
    shift = torch.tensor(3.0) if kind == "unit" else torch.zeros(())
    return small_module(
        name,
        *masked(network, 0.6, torch.Generator().manual_seed(ord(name))),
        CATALOGUE,
        model,
        shape,
        outputs,
        scaling=Scaling(kind, shift, torch.tensor(1 / 255 if kind == "unit" else 1.0)),
        origin=digest_of("origin", network.state_dict()),
        provenance={"seed": 0},
    )


def raw(model: str, dtype: torch.dtype = torch.uint8, rows: int = 7) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randint(0, 256, (rows, *SHAPES[model]), generator=generator)
    return x.to(dtype)


def artifact(model: str, operator: str | None = None) -> Exportable:
    if operator is None:
        return part("a", model)
    return compose([part(name, model) for name in "abc"], operator)


def answers(what: Exportable, x: Tensor) -> Tensor:
    with torch.no_grad():
        return (what.to_module() if isinstance(what, Module) else what)(x)


def with_onnxruntime(path: Path, x: Tensor) -> Tensor:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"inputs": x.numpy()})[0])


THINGS = [("mlp(16)", "logits"), ("lenet", "sum"), ("resnet18(4)", None)]
MORE = [("mlp(16)", None), ("mlp(16)", "inlay"), ("resnet18(4)", "logits"), ("vgg11(2)", "sum")]


@pytest.mark.parametrize(
    ("model", "operator"), [*THINGS[:2], pytest.param(*THINGS[2], marks=pytest.mark.slow)]
)
def test_onnxruntime_answers_as_we_do(model: str, operator: str | None, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    what, path = artifact(model, operator), tmp_path / "model.onnx"
    export(what, path, inputs="uint8")
    for rows in (1, 7):
        x = raw(model, rows=rows)
        result, expected = with_onnxruntime(path, x), answers(what, x)
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-4)
        assert torch.equal(result.argmax(1), expected.argmax(1))


def test_onnx_of_trained_digits(tmp_path: Path) -> None:
    """Real inputs, as floats: the usual type of a table."""
    pytest.importorskip("onnxscript")
    import intarsia as ia

    data = load_data("digits")
    bank = ia.train(data, model="mlp(16)", epochs=2, sparsity=0.5, learning_rate=0.01)
    x = data.test.x.to(torch.float32)
    merged, path = ia.compose(bank, "sum"), tmp_path / "sum.onnx"
    export(merged, path)
    result = with_onnxruntime(path, x)
    torch.testing.assert_close(result, answers(merged, x), rtol=0, atol=1e-4)
    assert torch.equal(result.argmax(1), merged.predict(data.test.x))


def test_onnx_says_what_it_is_and_nothing_about_this_machine(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path, again = tmp_path / "a.onnx", tmp_path / "b.onnx"
    for name in (path, again):
        export(compose([part(n, "mlp(16)") for n in "abc"], "logits"), name)
    assert path.read_bytes() == again.read_bytes()
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}["intarsia"]
    assert about["catalogue"] == list(CATALOGUE)
    assert (about["operator"], about["parts"]) == ("logits", ["a", "b", "c"])
    assert about["scaling"][0] == {"kind": "unit", "shift": 3.0, "scale": pytest.approx(1 / 255)}
    for word in (b".py", b"/src/", str(Path(__file__).parents[1]).encode()):
        assert word not in path.read_bytes()


@pytest.mark.parametrize(("model", "operator"), [*THINGS, *MORE])
def test_a_plain_network_has_no_class_of_ours(model: str, operator: str | None) -> None:
    what = artifact(model, operator)
    network = to_network(what)
    for dtype in (torch.uint8, torch.float32, torch.int64):
        x = raw(model, dtype)
        with torch.no_grad():
            assert torch.equal(network(x), answers(what, x))
    assert {type(m).__module__.partition(".")[0] for m in network.modules()} == {"torch"}
    assert "intarsia" not in network.code
    assert not network.training


def test_a_plain_network_keeps_the_layers_names_and_shares_no_memory() -> None:
    model = part("a", "mlp(16)").to_module()
    network = to_network(model)
    assert isinstance(network.get_submodule("network.layers.0"), nn.Linear)
    before = model(raw("mlp(16)"))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert torch.equal(model(raw("mlp(16)")), before)


def test_an_explicit_other_is_shared_out() -> None:
    what = part("b", "mlp(16)", "none", outputs=6)
    x = raw("mlp(16)", torch.float32)
    expected = answers(what, x)
    assert expected.shape == (7, 5)
    assert torch.allclose(to_network(what)(x), expected)
    assert torch.allclose(export_program(what).module()(x), expected)


@pytest.mark.parametrize(("model", "operator"), THINGS)
def test_an_exported_program_takes_any_number_of_rows(model: str, operator: str | None) -> None:
    what = artifact(model, operator)
    program = export_program(what, "uint8").module()
    for rows in (3, 7):
        x = raw(model, rows=rows)
        assert torch.allclose(program(x), answers(what, x), atol=1e-6)


def test_training_mode_is_not_exported() -> None:
    model = part("a", "mlp(16)").to_module().train()
    x = raw("mlp(16)", torch.float32)
    expected = answers(part("a", "mlp(16)"), x)
    assert torch.equal(to_network(model)(x), expected)
    assert torch.allclose(export_program(model).module()(x), expected)
    assert model.training


@pytest.mark.parametrize("operator", [None, "sum"])
def test_safetensors_holds_the_bare_network(operator: str | None, tmp_path: Path) -> None:
    what, path = artifact("mlp(16)", operator), tmp_path / "model.safetensors"
    export(what, path)
    with safe_open(path, "pt") as file:
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["network"])
    # What a reader does who has the class alone: load, scale, ask.
    network = Architecture.of("mlp(16)", (6,), 5).skeleton().to_empty(device="cpu").eval()
    network.load_state_dict(state)
    scaling = Scaling.from_json(about["scaling"][0])
    assert torch.equal(network(scaling(raw("mlp(16)"))), answers(what, raw("mlp(16)")))
    assert (about["temperature"], about["shape"]) == (5.0, [6])
    assert about["rewarded"] == (["a"] if operator is None else ["a", "b", "c"])


def test_safetensors_of_joined_logits_holds_each_part(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    export(artifact("mlp(16)", "logits"), path)
    export(artifact("mlp(16)", "logits"), tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    with safe_open(path, "pt") as file:
        for i, name in enumerate(json.loads(file.metadata()["network"])["parts"]):
            expected = part(name, "mlp(16)").state["layers.0.weight"]
            assert torch.equal(file.get_tensor(f"parts.{i}.layers.0.weight"), expected)


@pytest.mark.parametrize("operator", [None, "mean", "logits"])
def test_safetensors_keep_the_type_of_the_parts(operator: str | None, tmp_path: Path) -> None:
    def network(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        layers = nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(12, 5))
        return layers.to(torch.bfloat16)

    of = {"catalogue": CATALOGUE, "base": network(0), "shape": (2,)}
    parts = [Module.of(network(i), rewarded=name, **of) for i, name in enumerate("ab", 1)]
    what = parts[0] if operator is None else compose(parts, operator)
    export(what, tmp_path / "model.safetensors")
    state = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    x = torch.arange(8).reshape(4, 2)
    if operator != "logits":  # which has two networks
        reader = network(3)
        reader.load_state_dict(state)
        assert torch.equal(reader(x), answers(what, x))
    else:
        assert torch.equal(state["parts.1.2.weight"], parts[1].state["2.weight"])


def test_a_strangers_network_is_exported_too(tmp_path: Path) -> None:
    def factory(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], 4), nn.Tanh(), nn.Linear(4, outputs))

    module = _of_factory(factory)
    x = torch.rand(3, 6)
    assert torch.equal(to_network(module)(x), answers(module, x))
    assert torch.allclose(export_program(module).module()(x), answers(module, x))


def test_a_network_that_branches_on_values_is_refused(tmp_path: Path) -> None:
    class Fickle(nn.Module):
        def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
            super().__init__()
            self.layer = nn.Linear(shape[0], outputs)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum() > 0 else self.layer(-x)

    module = _of_factory(Fickle)
    for attempt in (to_network, export_program):
        with pytest.raises(ModelError, match="must not branch on the values") as caught:
            attempt(module)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "error", "said"),
    [
        ("model.onxx", {}, FileError, "did you mean 'onnx'"),
        ("model.pt", {}, FileError, "hold pickles"),
        ("model", {}, FileError, "known: onnx, safetensors"),
        ("model.bin", {"format": "pt2"}, FileError, "export_program in Python"),
        ("model.onnx", {"inputs": "uint16"}, RecipeError, "did you mean 'uint8'"),
    ],
)
def test_errors(
    name: str, options: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        export(artifact("mlp(16)"), tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_bank_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"a Bank cannot be exported: .*compose\(bank\)"):
        export(Bank([part("a", "mlp(16)")]), tmp_path / "x.onnx")  # type: ignore[arg-type]


def test_onnx_names_the_extra_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(FileError, match=r"onnxscript: install it with .*intarsia\[onnx\]"):
        export(part("a", "mlp(16)"), tmp_path / "never.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_operator_can_be_exported(operator: str) -> None:
    x = raw("mlp(16)", torch.float32, rows=40)
    samples = Split(x, torch.arange(40) % 5)
    how = OPERATORS.entry(operator)
    parts = [part(name, "mlp(16)") for name in "abc"[: how.most]]
    for calibrate in (False, True):
        if calibrate and (how.on == "weights" or how.chooses):
            continue
        merged = compose(parts, operator, samples=samples, calibrate=calibrate)
        expected = answers(merged, x)
        with torch.no_grad():
            torch.testing.assert_close(to_network(merged)(x), expected)
            if merged.joined is None and calibrate:
                torch.testing.assert_close(export_program(merged).module()(x), expected)


def test_a_calibrated_network_takes_its_offset_along(tmp_path: Path) -> None:
    x = raw("mlp(16)", torch.float32, rows=40)
    parts = [part(name, "mlp(16)") for name in "abc"]
    samples = Split(x, torch.arange(40) % 5)
    merged = compose(parts, "inlay", samples=samples, calibrate=True)
    export(merged, tmp_path / "whole.safetensors")
    with safe_open(tmp_path / "whole.safetensors", "pt") as file:
        state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()["network"])
    hidden = torch.relu((x - 3) / 255 @ state["layers.0.weight"].T + state["layers.0.bias"])
    result = hidden @ state["layers.1.weight"].T + torch.tensor(about["offset"])
    torch.testing.assert_close(result, answers(merged, x), atol=1e-4, rtol=1e-4)


def test_calibrated_logits_take_their_scales_along(tmp_path: Path) -> None:
    x = raw("mlp(16)", torch.float32, rows=40)
    parts = [part(name, "mlp(16)") for name in "abc"]
    merged = compose(parts, "logits", samples=Split(x, torch.arange(40) % 5), calibrate=True)
    export(merged, tmp_path / "whole.safetensors")
    with safe_open(tmp_path / "whole.safetensors", "pt") as file:
        about = json.loads(file.metadata()["network"])
    each = [
        scale * answers(p.to_module(), x) for scale, p in zip(about["scales"], parts, strict=True)
    ]
    result = sum(each) + torch.tensor(about["offset"])
    torch.testing.assert_close(result, answers(merged, x), atol=1e-4, rtol=1e-4)


def _of_factory(factory: Callable[[tuple[int, ...], int], nn.Module]) -> Module:
    return Module(
        name="a",
        state=initialise(factory, (6,), 5, 0).state_dict(),
        mask={},
        rewarded=("a",),
        catalogue=CATALOGUE,
        architecture=Architecture.of(factory, (6,), 5),
        scaling=Scaling("none", torch.zeros(()), torch.ones(())),
        temperature=1.0,
        origin="0" * 64,
        factory=factory,
    )


def test_an_encoder_is_exported_with_the_modules_behind_it(tmp_path: Path) -> None:
    """ONNX, a plain network and a program take raw pictures; tensors alone are the modules'."""
    encoder = Encoder.of(TinyEncoder(), SHAPE)
    parts = [encoded(name, encoder) for name in "ab"]
    x = torch.tensor(pictures(5)[0])
    for what in (parts[0], compose(parts, "logits")):
        expected = answers(what, x)
        with torch.no_grad():
            torch.testing.assert_close(to_network(what)(x.float()), expected)
        program = export_program(what, "uint8").module()
        torch.testing.assert_close(program(x), expected)
    assert export(parts[0], tmp_path / "m.onnx", inputs="uint8") == "onnx"
    torch.testing.assert_close(
        with_onnxruntime(tmp_path / "m.onnx", x), answers(parts[0], x), rtol=1e-4, atol=1e-4
    )
    export(parts[0], tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["network"])
        assert set(file.keys()) == set(parts[0].state)
    assert about["shape"] == [FEATURES]
    assert about["encoder"]["shape"] == list(SHAPE)
    assert what.encoder is encoder  # what was exported still takes raw pictures


def test_what_no_encoder_can_be_exported_for_is_refused(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return x.flatten(1)[:, :FEATURES]

    module = encoded("a", Encoder.of(function, SHAPE))
    with pytest.raises(ModelError, match="is a function"):
        export(module, tmp_path / "m.onnx")
    with pytest.raises(DataError, match="takes N x 3 x 6 x 5"):
        export(encoded("a", Encoder.of(TinyEncoder(), SHAPE)), tmp_path / "m.onnx", shape=(3, 9, 9))
    with pytest.raises(ModelError, match="there is no encoder"):
        export(part("a", "mlp(16)"), tmp_path / "m.onnx", shape=(3, 9, 9))


def encoded(name: str, encoder: Encoder) -> Module:
    network = initialise("mlp(8)", (FEATURES,), 5, seed=ord(name))
    scaling = Scaling("unit", torch.tensor(0.0), torch.tensor(1.0))
    return small_module(
        name, network.state_dict(), {}, CATALOGUE, "mlp(8)", (FEATURES,), scaling=scaling,
        encoder=encoder,
    )  # fmt: skip


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.two.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


def tied_parts_joined(how: str, kind: type[Tied] = Tied) -> Composition:
    torch.manual_seed(0)
    base = kind()
    parts = [
        Module.of(kind(), rewarded=name, catalogue=("a", "b"), shape=(5,), base=base)
        for name in "ab"
    ]
    return compose(parts, how)


@pytest.mark.parametrize("how", ["mean", "logits"])
def test_a_weight_with_two_names_is_one_in_the_network_that_is_made(how: str) -> None:
    merged, x = tied_parts_joined(how), torch.randn(4, 5)
    with torch.no_grad():
        expected = merged(x)
        made = to_network(merged)
        assert torch.equal(made(x), expected)
        assert torch.equal(merged(x), expected)
    layers = {name: layer for name, layer in made.named_modules() if name.endswith(("one", "two"))}
    for name, layer in layers.items():
        assert layer.weight is layers[f"{name[:-3]}one"].weight


@pytest.mark.parametrize("how", ["mean", "logits"])
def test_a_weight_with_two_names_has_both_among_the_tensors(how: str, tmp_path: Path) -> None:
    """So that the class that it is of loads it, strictly."""
    merged, x = tied_parts_joined(how), torch.randn(4, 5)
    export(merged, tmp_path / "tensors.safetensors")
    state, logits = load_file(tmp_path / "tensors.safetensors"), torch.zeros(4, 2)
    for prefix in [""] if how == "mean" else ["parts.0.", "parts.1."]:
        network = Tied()
        own = {name: tensor for name, tensor in state.items() if name.startswith(prefix)}
        network.load_state_dict({name.removeprefix(prefix): own[name] for name in own})
        logits = logits + network(x)
    with torch.no_grad():
        assert torch.equal(logits, merged(x))


class Asking(Tied):
    """It asks for the type and the size of what it is given, as networks of transformers do."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != self.one.weight.dtype or x.shape[1] > 5:
            raise ValueError("expected five numbers of the weights' type")
        return super().forward(x)


@pytest.mark.parametrize("how", ["mean", "logits"])
def test_a_network_that_asks_for_the_type_of_its_inputs_is_written_down(how: str) -> None:
    merged = tied_parts_joined(how, Asking)
    network = to_network(merged)
    for rows, dtype in ((1, torch.uint8), (2, torch.float32), (7, torch.int64)):
        x = torch.randint(0, 9, (rows, 5)).to(dtype)
        assert torch.equal(network.train().eval()(x), answers(merged, x))
    assert {type(m).__module__.partition(".")[0] for m in network.modules()} == {"torch"}
    assert "intarsia" not in network.code
    kept = {name.partition("network.")[2] for name, _ in network.named_parameters()}
    assert kept == set(dict(Asking().named_parameters()))


def test_an_encoder_that_asks_for_the_type_of_its_inputs_is_written_down() -> None:
    class Inner(TinyEncoder):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.dtype == self.weight.dtype else x

    module = encoded("a", Encoder.of(PictureEncoder(Inner()), SHAPE))
    network, x = to_network(module), torch.tensor(pictures(5)[0])
    with torch.no_grad():
        for given in (x, x.float()):
            torch.testing.assert_close(network(given), answers(module, x))
