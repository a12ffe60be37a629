"""What a user registered goes to the workers of a cluster with the plan that names it."""

import pytest

import intarsia as ia
from intarsia.training.plan import TrainingPlan
from intarsia.training.settings.batches import BATCHES, Batches

pytest.importorskip("ray", reason="needs ray: pip install 'intarsia[cluster]'")


def test_optimisers_schedules_and_batches_of_the_users_own_are_sent(small_data, monkeypatch):
    from intarsia.training.distributed.ray_pool import additions

    def add(registry, name, function, **traits):
        monkeypatch.setitem(registry, name, None)  # taken out again after the test
        registry.register(name, **traits)(function)

    add(ia.OPTIMISERS, "mine_sgd", lambda: ia.OPTIMISERS["sgd"]())
    add(ia.SCHEDULES, "mine_falling", lambda step, steps: 1 - step / steps)
    add(BATCHES, "mine_few", lambda: Batches(others=1.0), draws=True)
    names = {"optimiser": "mine_sgd", "schedule": "mine_falling", "batches": "mine_few"}
    plan = TrainingPlan.of(small_data, None, None, {"model": "mlp(4)", **names}, None, None, None)
    sent = [name for entries in additions(plan, "single") for name in entries]
    assert sorted(sent) == sorted(names.values())
