"""Modules that read features: raw inputs go through the encoder, which travels with the files."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch

import intarsia as ia
from intarsia.artifacts import data_for, split_for
from intarsia.encoders import ENCODERS, Encoder
from intarsia.encoders.pretrained import PRETRAINED
from intarsia.errors import CompositionError, DataError, FileError, ModelError
from intarsia.modules import Bank, Module, file
from intarsia.modules.module import KIND
from tiny_encoder import FEATURES, SHAPE, TinyEncoder, pictures

SETTINGS: dict[str, Any] = {
    "model": "mlp(16)", "epochs": 30, "rounds": 0, "learning_rate": 0.01, "progress": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def bank() -> Bank:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setenv("INTARSIA_CACHE", folder)
        return ia.train(ia.load_data(*pictures(), features=TinyEncoder()), **SETTINGS)


def features(x: np.ndarray) -> torch.Tensor:
    return TinyEncoder().eval()(torch.tensor(x).float()).detach()


def test_raw_pictures_and_their_features_have_the_same_answers(bank: Bank) -> None:
    x, y = pictures()
    assert bank[0].encoder is not None
    for model in (bank[0].to_module(), ia.compose(bank), ia.compose(bank, "logits")):
        expected = model.predict_proba(features(x))
        assert torch.equal(model.predict_proba(x), expected)
        for form in (x.transpose(0, 2, 3, 1), x.reshape(len(x), -1), torch.tensor(x)):
            assert torch.equal(model.predict_proba(form), expected)
        assert torch.equal(model.predict(x, abstain=0.5), model.predict(features(x), abstain=0.5))
    whole, split = ia.compose(bank), ia.Split(torch.tensor(x), torch.tensor(y))
    assert ia.evaluate(whole, split).accuracy > 0.9
    novel = ia.novelty(whole, split)
    assert torch.equal(novel.scores(whole, x), novel.scores(whole, features(x)))


def test_raw_samples_may_be_looked_at_where_modules_are_joined(bank: Bank) -> None:
    x, _ = pictures()
    raw, ready = (ia.compose(bank, "fisher", samples=s) for s in (x, features(x)))
    assert raw.samples is not None
    assert raw.samples.x.shape == (60, FEATURES)
    assert torch.equal(raw.predict_proba(x), ready.predict_proba(x))
    one, other = (ia.compatibility(bank[0], bank[1], s) for s in (x, features(x)))
    assert str(one) == str(other)


def test_inputs_that_are_neither_are_refused_by_name(bank: Bank) -> None:
    with pytest.raises(DataError, match=r"custom TinyEncoder reads, N x 3 x 6 x 5, or N x 7"):
        bank[0].to_module().predict(np.zeros((2, 3, 8, 8)))


def test_the_encoder_is_no_part_of_the_networks_state(bank: Bank) -> None:
    whole = ia.compose(bank)
    assert not [name for name in whole.state_dict() if "encoder" in name]
    assert whole.double().predict_proba(pictures()[0]).dtype == torch.float64


def test_a_file_holds_the_identity_and_is_given_the_network(bank: Bank, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    bank[0].save(path)
    x, _ = pictures()
    read = Module.load(path, quiet=True)
    assert read.digest == bank[0].digest
    assert read.encoder is not None
    assert read.encoder.same_as(bank[0].encoder)
    assert torch.equal(read.to_module().predict(features(x)), bank[0].to_module().predict(x))
    with pytest.raises(ModelError, match=r"'TinyEncoder'.*Module.load\(path, encoder=network\)"):
        read.to_module().predict(x)
    read = Module.load(path, quiet=True, encoder=TinyEncoder())
    assert torch.equal(read.to_module().predict(x), bank[0].to_module().predict(x))
    read.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    with pytest.raises(FileError, match=r"m.safetensors.*is not 'custom TinyEncoder'.*weights"):
        Module.load(path, quiet=True, encoder=TinyEncoder(seed=1))


def test_banks_and_compositions_are_given_the_network_too(bank: Bank, tmp_path: Path) -> None:
    x, _ = pictures()
    bank.save(tmp_path / "bank")
    whole = ia.compose(bank)
    whole.save(tmp_path / "whole.safetensors")
    read = Bank.load(tmp_path / "bank", quiet=True, encoder=TinyEncoder())
    joined = ia.Composition.load(tmp_path / "whole.safetensors", quiet=True, encoder=TinyEncoder())
    assert torch.equal(ia.compose(read).predict(x), whole.predict(x))
    assert torch.equal(joined.predict(x), whole.predict(x))
    with pytest.raises(ModelError, match="'TinyEncoder'"):
        ia.Composition.load(tmp_path / "whole.safetensors", quiet=True).predict(x)
    with pytest.raises(FileError, match="weights"):
        Bank.load(tmp_path / "bank", quiet=True, encoder=TinyEncoder(seed=1))


def test_a_module_without_an_encoder_takes_none(bank: Bank, tmp_path: Path) -> None:
    plain = replace(bank[0], encoder=None)
    assert plain.digest != bank[0].digest
    plain.save(tmp_path / "m.safetensors")
    assert "encoder" not in file.read(tmp_path / "m.safetensors", KIND)[0]
    with pytest.raises(FileError, match="has no encoder"):
        Module.load(tmp_path / "m.safetensors", quiet=True, encoder=TinyEncoder())


@pytest.mark.parametrize("operator", ["sum", "inlay", "logits"])
def test_modules_of_two_encoders_are_not_joined(bank: Bank, operator: str) -> None:
    assert bank[1].encoder is not None
    others = {
        "none": None,
        "custom flat": Encoder.of(flat, SHAPE),
        "another custom TinyEncoder": Encoder.of(TinyEncoder(seed=1), SHAPE),
    }
    for name, encoder in others.items():
        with pytest.raises(CompositionError, match=rf"module .* its encoder is {name}"):
            ia.compose([bank[0], replace(bank[1], encoder=encoder)], operator)
    with pytest.raises(CompositionError, match="encoder"):
        ia.compatibility(bank[0], replace(bank[1], encoder=None))


def flat(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(1)[:, :FEATURES]


def test_data_of_another_encoder_are_refused_and_raw_data_are_encoded(bank: Bank) -> None:
    raw = ia.load_data(*pictures())
    other = ia.load_data(*pictures(), features=TinyEncoder(seed=1))
    mine = ia.load_data(*pictures(), features=TinyEncoder())
    with pytest.raises(DataError, match="holds features of custom TinyEncoder"):
        ia.compose(bank, "fisher", samples=other)
    with pytest.raises(DataError, match="the modules read raw inputs"):
        split_for(ia.train(raw, **SETTINGS), mine, "test")
    one, same = (split_for(bank, data, "test") for data in (raw, mine))
    torch.testing.assert_close(one.x, same.x)
    page = ia.report(bank, data=raw)
    assert "features of raw inputs of 3 x 6 x 5" in page.html


def test_data_are_loaded_with_the_encoder_that_the_modules_were_given(tmp_path: Path) -> None:
    x, y = pictures()
    path = str(tmp_path / "pictures.npz")
    np.savez(path, x=x, y=y)
    bank = ia.train(ia.load_data(path, features=TinyEncoder()), **SETTINGS)
    data, known = data_for(bank, path, {})
    assert data.shape == (FEATURES,)
    assert known


def test_an_encoder_must_give_what_the_network_reads(bank: Bank) -> None:
    with pytest.raises(ModelError, match="gives 4 features"):
        replace(bank[0], encoder=Encoder.of(lambda x: x.flatten(1)[:, :4], SHAPE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 0}, "encoder.features"),
        ({"features": 2**40}, "encoder.features"),
        ({"features": 8}, "gives 8 features"),
        ({"features": True}, "encoder.features"),
        ({"shape": []}, "encoder.shape"),
        ({"shape": [2**20, 2**20]}, "at most"),
        ({"shape": "3x6x5"}, "encoder.shape"),
        ({"weights": "abc"}, "64 hexadecimal"),
        ({"weights": None}, "encoder.weights"),
        ({"name": 3}, "encoder.name"),
        ({"name": "n" * 1000}, "encoder.name"),
        ({"probe": ["a"]}, "encoder.probe"),
        ({"probe": [0.0] * 500}, "encoder.probe"),
        ({"spec": {"name": "lite", "arguments": {}}}, "unknown encoder"),
        ({"spec": {"name": "efficientnet_lite0", "arguments": {"size": {}}}}, "setting"),
        ({"spec": {"name": "efficientnet_lite0", "arguments": {"sise": 3}}}, "sise"),
        ({"spec": {"name": "efficientnet_lite0", "arguments": {}}}, "a spec and a probe"),
        ({"more": 1}, "unknown more"),
    ],
)
def test_what_a_header_says_of_its_encoder_is_checked(
    bank: Bank, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    fields, tensors = bank[0].packed()
    fields["encoder"] |= change
    file.write(tmp_path / "m.safetensors", KIND, fields, tensors)
    with pytest.raises(FileError, match=message):
        Module.load(tmp_path / "m.safetensors", quiet=True)
    fields["encoder"] = []
    file.write(tmp_path / "m.safetensors", KIND, fields, tensors)
    with pytest.raises(FileError, match="'encoder'"):
        Module.load(tmp_path / "m.safetensors", quiet=True)


def test_a_run_that_is_taken_up_has_its_encoder(tmp_path: Path) -> None:
    data = ia.load_data(*pictures(), features=TinyEncoder())
    one, other = (ia.train(data, out=tmp_path / "run", **SETTINGS) for _ in range(2))
    x, _ = pictures()
    assert torch.equal(one[0].to_module().predict(x), other[0].to_module().predict(x))


def test_a_recipe_names_the_encoder_of_its_data() -> None:
    ENCODERS.register("tiny", resizes=False)(TinyEncoder)
    data = ia.load_data(*pictures(), features="tiny(seed=2)")
    module = ia.train(data, **SETTINGS)[0]
    assert module.provenance["recipe"]["data_options"] == {"features": "tiny(seed=2)"}
    assert module.provenance["data"]["digest"] == data.digest


ELSEWHERE = """
import sys, numpy, intarsia as ia
x = numpy.load(sys.argv[2], allow_pickle=False)
whole = ia.Composition.load(sys.argv[1], quiet=True)
print(*whole.predict(x).tolist(), *whole.predict(x[:, :, ::2, ::2], abstain=1.0).tolist())
"""


@pytest.mark.skipif(
    find_spec(PRETRAINED["efficientnet_lite0"].package) is None, reason="needs its weights"
)
def test_raw_picture_in_class_out_on_another_machine_without_the_cache(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(24) % 2
    x = draw.integers(0, 60, (24, 3, 16, 16), dtype=np.uint8)
    x[np.arange(24), y] += 180  # red or green
    data = ia.load_data(x, y, features="efficientnet_lite0(32)")
    whole = ia.compose(ia.train(data, **SETTINGS))
    whole.save(tmp_path / "whole.safetensors")
    np.save(tmp_path / "x.npy", x[:6])
    expected = [*whole.predict(x[:6]).tolist(), *whole.predict(x[:6, :, ::2, ::2]).tolist()]
    run = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, "whole.safetensors", "x.npy"],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "INTARSIA_CACHE": str(tmp_path / "elsewhere"),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert list(map(int, run.stdout.split())) == expected
    assert expected[:6] == y[:6].tolist()
