"""Every foreign network is served right or refused with a reason, and the docs say which."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from foreign_networks import NETWORKS
from foreign_suite import COLUMNS, SEEN, SETTINGS, Suite, reason, tried
from torch import nn

import intarsia as ia
from intarsia.composition import OPERATORS
from intarsia.composition.operators.fisher import diagonal
from intarsia.composition.operators.registry import is_tensorwise
from intarsia.errors import IntarsiaError, RecipeError, WiringError
from intarsia.models.custom.trial import trial_inputs
from intarsia.modules import logits_of

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results" / "networks.json"
REFUSED = ("complex weights",)
UNUSUAL = (
    "BatchNorm, convolution", "learned scale of the logits", "a mask as a bool buffer",
    "spectral norm", "tied weights", "Llama-like",
)  # fmt: skip
SERVED = [name for name in NETWORKS if name not in REFUSED]

pytestmark = pytest.mark.slow  # half a minute to try all networks; .ci/run names it


@pytest.fixture(scope="module", autouse=True)
def _one_thread(threads: Callable[[int], AbstractContextManager[None]]) -> Iterator[None]:
    with threads(1):
        yield


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Suite]:
    folder = tmp_path_factory.mktemp("foreign")
    return {name: Suite(network, folder) for name, network in NETWORKS.items()}


@pytest.fixture(scope="module")
def cells(suites: dict[str, Suite]) -> dict[str, dict[str, str]]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the buffer .* differs from part to part")
        return {name: suite.cells() for name, suite in suites.items()}


def test_the_results_say_what_the_suite_finds(cells: dict[str, dict[str, str]]) -> None:
    assert len(cells) >= 25
    written = json.loads(RESULTS.read_text())
    assert written["checks"] == SEEN
    assert written["networks"] == tried(cells), "run `python benchmarks/experiments/networks.py`"


def test_what_needs_no_units_is_never_refused(cells: dict[str, dict[str, str]]) -> None:
    for name in SERVED:
        refused = {c for c in COLUMNS if cells[name][c] != "yes"}
        assert refused <= {"aligns", "lies inlaid", "compacts"}, (name, refused)
    for name in REFUSED:
        assert len({reason(cells[name][column]) for column in COLUMNS}) == 1


def _operators_for(name: str) -> list[str]:
    """All that look at the network; of those that take tensor by tensor every third, in turn.

    Networks whose tensors are of unusual kinds have all of them.
    """
    if name in UNUSUAL:
        return list(OPERATORS)
    turn = SERVED.index(name)
    return [
        operator
        for place, operator in enumerate(OPERATORS)
        if not is_tensorwise(operator) or (place + turn) % 3 == 0
    ]


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.filterwarnings("ignore:the buffer .* differs from part to part")
def test_every_operator_works_or_says_why_not(name: str, suites: dict[str, Suite]) -> None:
    suite = suites[name]
    refused = set()
    for operator in _operators_for(name):
        try:
            merged = ia.compose(suite.bank, operator, samples=suite.data)
        except IntarsiaError:
            refused.add(operator)
            continue
        assert torch.isfinite(logits_of(merged, suite.data.test.x)).all()
    by_readout = {"centroid", "centroid_entropy"}
    assert refused <= {"inlay", "regmean", *by_readout}
    without = ("mixture of experts", "einsum", "einsum, wired by hand", "log_softmax at the end")
    assert refused & by_readout == (by_readout if name in without else set())
    unreadable = (
        "weight norm", "spectral norm", "a Linear with a forward of its own", "tied weights",
    )  # fmt: skip
    assert ("regmean" in refused) == (name in unreadable)


@pytest.mark.parametrize("name", SERVED)
def test_fisher_is_that_of_plain_backward_passes(name: str, suites: dict[str, Suite]) -> None:
    module = suites[name].dense[0]
    network = module.architecture.network(module.state, module.factory)
    x = trial_inputs(network, module.architecture.shape, rows=3)
    sums = {n: torch.zeros_like(p) for n, p in network.named_parameters()}
    for row in x:
        log_p = torch.log_softmax(network(row[None]) / 2.0, dim=1)[0]
        for one in log_p:
            grads = torch.autograd.grad(
                one, list(network.parameters()), retain_graph=True, materialize_grads=True,
                allow_unused=True,
            )  # fmt: skip
            for key, grad in zip(sums, grads, strict=True):
                sums[key] += one.exp().detach() * grad.square() / len(x)
    for key, result in diagonal(network, x, 2.0).items():
        torch.testing.assert_close(result.float(), sums[key], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "spectral norm"])
def test_stacks_say_what_they_cannot_run(name: str, suites: dict[str, Suite]) -> None:
    suite = suites[name]
    with pytest.raises(RecipeError, match=r"engine 'stack'.*torch\.vmap.*'single'"):
        ia.train(suite.data, model=suite.factory, sparsity=0, **SETTINGS | {"engine": "stack"})


@pytest.mark.parametrize("name", ["mixture of experts", "bilinear", "spectral norm"])
def test_what_works_on_units_names_itself(name: str, suites: dict[str, Suite]) -> None:
    suite = suites[name]
    settings = SETTINGS | {"rounds": 0, "pruning": "territory"}
    for what, says in {
        lambda: ia.train(suite.data, model=suite.factory, **settings): "pruning by territory",
        lambda: ia.compose(suite.bank, "inlay"): "inlay works on units",
        lambda: ia.compose(suite.bank, "sum", align="weights"): "aligning moves units",
        lambda: ia.compact(suite.bank[0]): "compacting takes units out",
    }.items():
        with pytest.raises(WiringError, match=f"{says}.*wiring: cannot read the axes of"):
            what()


@pytest.mark.parametrize("pruning", ["territory", "units"])
def test_a_unit_that_cannot_be_empty_cannot_be_pruned(
    pruning: str, suites: dict[str, Suite]
) -> None:
    suite = suites["weight norm"]
    with pytest.raises(RecipeError, match=r"whole units.*are 0.*infinity or nan.*by magnitude"):
        ia.train(suite.data, model=suite.factory, **SETTINGS | {"pruning": pruning})


def test_batch_statistics_are_measured_without_a_wiring(suites: dict[str, Suite]) -> None:
    suite = suites["BatchNorm behind a slice"]
    merged = ia.compose(suite.bank, "sum", samples=suite.data)
    assert merged.report["notes"] == ["BatchNorm statistics were recomputed from 24 samples"]
    assert merged.joined is not None
    state = merged.joined.state
    x = suite.data.scaling(suite.data.validation.x)
    hidden = nn.functional.linear(x, state["first.weight"], state["first.bias"])
    read = hidden[:, :6] - hidden[:, 6:]
    torch.testing.assert_close(state["norm.running_mean"], read.mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state["norm.running_var"], read.var(0), rtol=1e-4, atol=1e-5)


def test_buffers_that_training_changes_are_spoken_of(suites: dict[str, Suite]) -> None:
    with pytest.warns(UserWarning, match=r"the buffer '0\.parametrizations\.weight.*averaged"):
        merged = ia.compose(suites["spectral norm"].bank, "sum")
    assert any("may not fit the joined weights" in note for note in merged.report["notes"])


def test_token_ids_must_not_be_scaled(suites: dict[str, Suite]) -> None:
    from intarsia.data import Data
    from intarsia.errors import DataError

    given = suites["token embedding"].data
    parts = given.train, given.validation, given.test
    scaled = Data.build("scaled", given.catalogue, *parts, "standard")
    with pytest.raises(DataError, match=r"reads whole numbers.*'standard'.*scale='none'"):
        ia.train(scaled, model=suites["token embedding"].factory, **SETTINGS)
