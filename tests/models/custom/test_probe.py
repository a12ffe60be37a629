"""A factory is known by what its network computes, not only by its list of tensors."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.errors import CompositionError, FileError, TrainingError
from intarsia.models.custom.probe import TOLERANCE, probe_difference, probe_of
from intarsia.modules import Architecture, Module

Factory = Callable[[tuple[int, ...], int], nn.Module]
SHAPE = (64,)


def act(curve: Callable[[], nn.Module]) -> Factory:
    return lambda shape, outputs: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), curve(), nn.Linear(6, outputs)
    )


ReLU, Tanh = act(nn.ReLU), act(nn.Tanh)
SETTINGS = {"partition": [["0"], ["1"]], "epochs": 1, "sparsity": 0.5, "rounds": 1}


@pytest.fixture(scope="module")
def bank() -> ia.Bank:
    return ia.train("digits", model=ReLU, progress=False, **SETTINGS)


@pytest.mark.parametrize("other", [nn.Tanh, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.Identity])
def test_functions_of_the_same_tensors_are_told_apart(other: Callable[[], nn.Module]) -> None:
    mine, theirs = probe_of(ReLU, SHAPE, 3), probe_of(act(other), SHAPE, 3)
    assert mine is not None
    assert theirs is not None
    assert probe_difference(mine, theirs) > 100 * TOLERANCE


def test_it_is_the_same_whatever_the_threads_and_the_weights() -> None:
    before = torch.get_num_threads()
    try:
        probes = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(threads)
            probes.append(probe_of(ReLU, SHAPE, 10))
    finally:
        torch.set_num_threads(before)
    assert probe_difference(*probes) <= TOLERANCE / 10


class Noisy(nn.Module):
    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(*shape, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x + torch.rand_like(x))


class Single(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(torch.float32))


@pytest.mark.parametrize("factory", [Noisy, Single])
def test_networks_that_cannot_be_probed_have_none(factory: Factory, tmp_path: Path) -> None:
    assert probe_of(factory, SHAPE, 3) is None
    architecture = Architecture.of(factory, SHAPE, 3)
    assert "probe" not in architecture.to_json()
    architecture.check_probe(factory)


def test_a_file_refuses_another_network(bank: ia.Bank, tmp_path: Path) -> None:
    bank.save(tmp_path / "bank")
    assert ia.Bank.load(tmp_path / "bank", act(nn.ReLU)).names == bank.names
    with pytest.raises(FileError, match=r"0\.safetensors.*makes another network.*fixed weights"):
        ia.Bank.load(tmp_path / "bank", Tanh)
    for operator in ("sum", "logits"):
        path = tmp_path / f"{operator}.safetensors"
        ia.compose(bank, operator).save(path)
        assert ia.Composition.load(path, act(nn.ReLU)).parts
        with pytest.raises(FileError, match="makes another network"):
            ia.Composition.load(path, Tanh)


def test_a_file_of_old_has_no_probe_and_loads(bank: ia.Bank, tmp_path: Path) -> None:
    old = replace(bank[0], architecture=replace(bank[0].architecture, probe=None))
    assert "probe" not in json.dumps(old.packed()[0])
    old.save(tmp_path / "old.safetensors")
    loaded = Module.load(tmp_path / "old.safetensors", ReLU)
    assert loaded.digest == old.digest
    assert Module.load(tmp_path / "old.safetensors", Tanh).architecture.probe is None


def test_a_probe_that_is_none_is_refused(bank: ia.Bank, tmp_path: Path) -> None:
    for probe in ((1.0,) * 300, (2e30,)):
        architecture = replace(bank[0].architecture, probe=probe)
        replace(bank[0], architecture=architecture).save(tmp_path / "m.safetensors")
        with pytest.raises(FileError, match=r"architecture\.probe"):
            Module.load(tmp_path / "m.safetensors", ReLU)


def test_a_run_is_not_taken_up_with_another_network(tmp_path: Path) -> None:
    ia.train("digits", model=ReLU, out=tmp_path / "run", progress=False, **SETTINGS)
    ia.train("digits", model=act(nn.ReLU), out=tmp_path / "run", progress=False, **SETTINGS)
    with pytest.raises(TrainingError, match="another recipe, data set, network"):
        ia.train("digits", model=Tanh, out=tmp_path / "run", progress=False, **SETTINGS)


@pytest.mark.parametrize("operator", ["sum", "inlay", "logits"])
def test_parts_are_not_joined_with_another_network(bank: ia.Bank, operator: str) -> None:
    changed = [replace(module, factory=Tanh) for module in bank]
    with pytest.raises(CompositionError, match=r"module '0' cannot be joined.*another network"):
        ia.compose(changed, operator)


def test_a_grown_module_is_known_by_its_new_outputs(bank: ia.Bank, tmp_path: Path) -> None:
    larger = ia.grown(bank[0], (*bank[0].catalogue, "ten"))
    larger.save(tmp_path / "m.safetensors")
    assert Module.load(tmp_path / "m.safetensors", ReLU).digest == larger.digest
