"""Large thin layers in compressed rows: the same answers, for inference only."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intarsia.errors import ModelError
from intarsia.modules import Classifier, Module
from intarsia.modules.sparse import SparseLinear, sparse

pytestmark = pytest.mark.usefixtures("one_thread")
Make = Callable[..., Module]


def thin(reads: int, gives: int, density: float, *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(reads, gives, bias=bias)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight *= torch.rand(layer.weight.shape, generator=generator) < density
    return layer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 7), (5, 7), (0, 7), (2, 3, 7), (7,)])
def test_it_answers_like_the_dense_layer(shape: tuple[int, ...], bias: bool) -> None:
    layer = thin(7, 9, 0.3, bias=bias)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(SparseLinear(layer)(x), layer(x))


def test_inputs_may_lie_apart_in_memory() -> None:
    layer = thin(7, 9, 0.3)
    made = SparseLinear(layer)
    x = torch.randn(4, 14, generator=torch.Generator().manual_seed(1))[:, ::2]
    with torch.inference_mode():
        for rows in (x, x[:1], x[::2]):
            torch.testing.assert_close(made(rows), layer(rows))


def test_only_large_thin_layers_are_exchanged() -> None:
    network = nn.Sequential(
        thin(400, 400, 0.02),
        nn.ReLU(),
        thin(400, 400, 0.2),  # too dense
        thin(400, 100, 0.02),  # too small
        thin(100, 2000, 0.02),
        thin(2000, 100, 0.02),  # too few rows
    )
    made = sparse(network)
    kinds = [type(layer) for layer in made]
    plain = nn.Linear
    assert kinds == [SparseLinear, nn.ReLU, plain, plain, SparseLinear, plain]
    assert type(network[0]) is plain
    x = torch.randn(3, 400, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(made(x), network(x), rtol=1e-4, atol=1e-5)


def test_a_layer_alone_and_a_layer_inside_layers() -> None:
    assert isinstance(sparse(thin(400, 400, 0.01)), SparseLinear)
    nested = sparse(nn.Sequential(nn.Sequential(thin(400, 400, 0.01))))
    assert isinstance(nested[0][0], SparseLinear)


def test_a_module_becomes_a_classifier(make_module: Make) -> None:
    module = make_module(model="mlp(600)", shape=(300,), density=0.01)
    made = sparse(module)
    assert isinstance(made, Classifier)
    assert isinstance(made.network.layers[0], SparseLinear)
    x = torch.randint(0, 256, (9, 300), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(made(x), module.to_module()(x))
    assert torch.equal(made.predict(x), module.to_module().predict(x))


def test_it_cannot_train() -> None:
    made = sparse(thin(400, 400, 0.01))
    assert not list(made.parameters())
    assert not made.training
    made.eval()
    with pytest.raises(ModelError, match="for inference and cannot train"):
        nn.Sequential(made).train()


def test_it_is_copied_and_cast_like_any_layer() -> None:
    layer = thin(7, 9, 0.3)
    x = torch.randn(4, 7, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        made = copy.deepcopy(SparseLinear(layer)).to(torch.float64)
        torch.testing.assert_close(made(x.double()), layer.double()(x.double()))
    assert "density=" in repr(made)


def test_torchs_word_about_its_beta_is_not_the_users() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseLinear(thin(7, 9, 0.3))


def test_without_the_product_the_layer_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Tensor) -> Tensor:
        raise RuntimeError("no kernel for this layout")

    monkeypatch.setattr(torch, "addmm", refuse)
    assert type(sparse(thin(400, 400, 0.01))) is nn.Linear
