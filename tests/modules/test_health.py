"""What weights tell of a module's health, what is kept of what training found, and how it reads."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from intarsia.errors import FileError, HealthWarning
from intarsia.modules import Bank, Finding, Health, Module
from intarsia.modules.health import answers_alike, some_of, warn, with_findings

Make = Callable[..., Module]


def cut(module: Module, *names: str) -> Module:
    """The module without the weights of these tensors."""
    none = {name: torch.zeros_like(module.state[name], dtype=torch.bool) for name in names}
    state = {k: torch.zeros_like(t) if k in none else t for k, t in module.state.items()}
    return replace(module, state=state, mask={**module.mask, **none})


def test_a_module_with_weights_all_the_way_is_healthy(make_module: Make) -> None:
    for density in (0.3, 1.0):
        health = make_module(density=density).health
        assert health == Health()
        assert health.ok
        assert health.to_json() == {"ok": True, "findings": []}


def test_a_layer_without_survivors_is_dead(make_module: Make) -> None:
    (finding,) = cut(make_module(name="2"), "layers.1.weight").health.findings
    assert (finding.kind, finding.module) == ("dead", "2")
    assert finding.message == (
        "no weight of layers.1.weight survives, so it answers the same to every input"
    )
    assert "sparsity" in finding.advice


def test_survivors_that_do_not_meet_are_dead(make_module: Make) -> None:
    """Every layer keeps weights, yet none leads through: one reads units that none gives to."""
    module = make_module(density=1.0)
    mask = {k: torch.zeros_like(module.state[k], dtype=torch.bool) for k in module.state}
    mask = {k: v for k, v in mask.items() if k.endswith("weight")}
    mask["layers.0.weight"][0], mask["layers.1.weight"][:, 1] = True, True
    state = {k: t * mask[k] if k in mask else t for k, t in module.state.items()}
    (finding,) = replace(module, state=state, mask=mask).health.findings
    assert finding.kind == "dead"
    assert "weights lead from none to the outputs" in finding.message
    mask["layers.1.weight"][:, 0] = True  # one way through is enough
    state = {k: t * mask[k] if k in mask else t for k, t in module.state.items()}
    assert replace(module, state=state, mask=mask).health.ok


def test_a_layer_that_others_go_around_leaves_the_answers_alive(make_module: Make) -> None:
    module = make_module(model="resnet18(width=4)", shape=(3, 8, 8), density=0.9)
    (finding,) = cut(module, "stages.0.0.conv1.weight").health.findings
    assert finding.message == "no weight of stages.0.0.conv1.weight survives"


def test_a_parameter_that_starts_at_zero_was_not_pruned(make_module: Make) -> None:
    class Token(nn.Module):
        """A token that is added to the inputs and starts at 0, as class tokens do."""

        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.zeros(1, 6))
            self.head = nn.Linear(6, outputs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x + self.token)

    module = make_module(model=lambda shape, outputs: Token(outputs), density=1.0)
    assert module.health.ok


def test_weights_that_are_all_zero_are_dead_without_a_mask(make_module: Make) -> None:
    module = make_module(density=1.0)
    nothing = replace(module, state={k: torch.zeros_like(t) for k, t in module.state.items()})
    assert [f.kind for f in nothing.health.findings] == ["dead"]


def test_survivors_that_never_left_0_are_not_called_pruned(make_module: Make) -> None:
    """As after a silent start, where no sample of its class reaches a unit."""
    module = make_module(density=0.5)
    state = {**module.state, "layers.1.weight": torch.zeros_like(module.state["layers.1.weight"])}
    assert bool(module.mask["layers.1.weight"].any())
    (finding,) = replace(module, state=state).health.findings
    assert finding.kind == "dead"
    assert "survives" not in finding.message
    assert "answers the same to every input" in finding.message


def test_a_network_that_reads_no_made_up_inputs_is_given_the_benefit(make_module: Make) -> None:
    class Words(nn.Module):
        """Embeds token numbers, which made-up inputs are not."""

        def __init__(self, outputs: int) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, outputs)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(x.long()).mean(1))

    module = make_module(model=lambda shape, outputs: Words(outputs), density=1.0)
    assert module.health.ok
    assert [f.message for f in cut(module, "head.weight").health.findings] == [
        "no weight of head.weight survives"
    ]


def test_huge_inputs_are_not_made_up(make_module: Make) -> None:
    """A small file may ask for a network with inputs that take gigabytes."""
    module = make_module(model="mlp(1)", shape=(2**20,), density=1.0)
    names = [f.message for f in cut(module, "layers.0.weight").health.findings]
    assert names == ["no weight of layers.0.weight survives"]


def test_what_training_found_goes_with_the_file_under_any_name(
    make_module: Make, tmp_path: Path
) -> None:
    finding = Finding("undertrained", "2", "it knows nothing", "train it")
    plain = make_module(name="2")
    assert with_findings(plain.provenance, ()) == plain.provenance  # so its digest stays
    module = replace(plain, provenance=with_findings(plain.provenance, [finding]))
    assert module.health.findings == (finding,)
    renamed = replace(module, name="two", rewarded=("2",))
    renamed.save(tmp_path / "two.safetensors")
    with pytest.warns(HealthWarning, match="undertrained: 'two' "):
        loaded = Module.load(tmp_path / "two.safetensors")
    assert loaded.digest == renamed.digest
    assert loaded.health.findings == (replace(finding, module="two"),)


def test_death_is_looked_up_and_not_told_twice(make_module: Make) -> None:
    dead = cut(make_module(), "layers.1.weight")
    stored = with_findings(dead.provenance, dead.health.findings)
    assert replace(dead, provenance=stored).health == dead.health


@pytest.mark.parametrize(
    "value",
    [3, "dead", [{}], [{"kind": "dead"}], [{"kind": "odd", "message": "", "advice": ""}], [None]],
)
def test_a_header_with_other_findings_is_refused(
    make_module: Make, tmp_path: Path, value: object
) -> None:
    path = tmp_path / "2.safetensors"
    make_module(provenance={"health": value}).save(path)
    with pytest.raises(FileError, match="'health'"):
        Module.load(path)


def test_a_module_that_diverged_is_missed(make_module: Make) -> None:
    health = Bank([make_module(name="2")], diverged=["3"]).health
    assert [(f.kind, f.module) for f in health.findings] == [("undertrained", "3")]


def test_one_warning_names_some_and_counts_the_rest() -> None:
    findings = [Finding("dead", f"m{i}", "it is cut", "lower the sparsity") for i in range(9)]
    findings.append(Finding("inconsistent", "x", "it is too sure", "show it more"))
    with pytest.warns(HealthWarning) as caught:
        warn(Health(tuple(findings)), "the bank")
    (warning,) = caught
    assert str(warning.message) == (
        "the bank is not healthy: dead: 'm0', 'm1', 'm2' and 6 more (it is cut): lower the "
        "sparsity; inconsistent: 'x' (it is too sure): show it more"
    )


def test_findings_print_themselves() -> None:
    health = Health((Finding("dead", "[red]", "it is cut", "train it"),))
    assert str(health) == "dead: [red]: it is cut: train it"
    assert str(Health()) == "nothing is wrong"
    from intarsia.measure.evaluation import printed

    assert "[red]" in printed(health)
    assert printed(Health()) == "nothing is wrong"


def test_some_of_names() -> None:
    assert some_of(["a"]) == "'a'"
    assert some_of(["a", "b"]) == "'a' and 'b'"
    assert some_of(list("abcde"), quoted=False) == "a, b, c and 2 more"


def test_alike_is_up_to_rounding() -> None:
    row = torch.tensor([[3.0, -2.0, 100.0]])
    assert answers_alike(row.repeat(5, 1))
    assert answers_alike(torch.cat([row, row * (1 + 1e-7)]))
    assert not answers_alike(torch.cat([row, row + 1e-3]))
    assert not answers_alike(row)  # one answer is no evidence
    routed = torch.tensor([[1.0, 2.0, -1e9], [2.0, 1.0, -1e9]])  # a class that no module is for
    assert not answers_alike(routed)
    assert answers_alike(routed[:1].repeat(3, 1))
