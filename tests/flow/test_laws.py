"""Laws have mean 0, variance 1 and the cumulants that they state; sources are read as they are."""

from pathlib import Path

import numpy as np
import pytest
import torch

from intarsia.errors import DataError, IntarsiaError, RecipeError
from intarsia.flow import LAWS, cumulants, draw, law_cumulants
from intarsia.flow.sample_sources import read_source

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("law", [*LAWS, "bernoulli(0.5)", "bernoulli(p=0.05)"])
def test_samples_have_the_stated_cumulants(law: str) -> None:
    found, expected = cumulants(draw(law, 2**17)), law_cumulants(law)
    assert found.errors is not None
    assert float(expected[1]) == 0
    assert float(expected[2]) == 1
    for order in range(1, 5):
        gap = abs(float(found[order].flatten()[0]) - float(expected[order]))
        assert gap <= 4.5 * float(found.errors[order - 1].flatten()[0]) + 1e-12, order


def test_the_same_seed_draws_the_same() -> None:
    assert torch.equal(draw("laplace", 5, 2, seed=3), draw("laplace", 5, 2, seed=3))
    assert not torch.equal(draw("laplace", 5, seed=3), draw("laplace", 5, seed=4))


@pytest.mark.parametrize("law", ["exponentail", "bernoulli(0)", "bernoulli(2)", "bernoulli('x')"])
def test_a_law_that_is_none(law: str) -> None:
    with pytest.raises(RecipeError):
        law_cumulants(law)
    with pytest.raises(RecipeError):
        draw(law, 4)


@pytest.mark.parametrize("shape", [(), (0,), (2, -1), (True,), (1.5,), (2**20, 2**20)])
def test_a_shape_that_is_none(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError):
        draw("gaussian", *shape)


def test_sources_of_numbers(tmp_path: Path) -> None:
    table, array = tmp_path / "a.csv", tmp_path / "a.npz"
    table.write_text("one,two\n1,2\n3,4.5\n")
    np.savez(array, x=np.array([[1, 2], [3, 4]]), y=np.array([0, 1]))
    assert read_source(str(table)).tolist() == [[1, 2], [3, 4.5]]
    assert read_source(str(array)).tolist() == [[1, 2], [3, 4]]
    assert read_source("digits").shape[1] == 64
    assert read_source("uniform", samples=7).shape == (7, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "no row"), ("a,b\n", "no row"), ("1,2\n3\n", "row 1"), ("1\nx\n", "'x'"),
     ("1\nnan\n", "not finite")],
)  # fmt: skip
def test_tables_that_are_none(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_source(str(path))
    assert "bad.csv" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", a=np.zeros(2), b=np.zeros(2))
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("two.npz", "none.npz", "none.csv", "bytes.csv", "nonsense"):
        with pytest.raises(IntarsiaError, match=name.partition(".")[0]):
            read_source(str(tmp_path / name))


def test_a_law_of_your_own() -> None:
    @LAWS.register("coin", cumulants=(0.0, 1.0, 0.0, -2.0))
    def coin(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return 2.0 * torch.randint(2, shape, generator=generator).double() - 1

    try:
        assert set(draw("coin", 50).tolist()) == {-1.0, 1.0}
        assert float(law_cumulants("coin")[4]) == -2
    finally:
        del LAWS["coin"]
