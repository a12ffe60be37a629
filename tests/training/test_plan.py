"""What a call of train asks for, before anything is trained."""

import dataclasses

import pytest
import torch

import intarsia as ia
from intarsia.errors import DataError
from intarsia.training import plan as home
from intarsia.training.job import Job
from intarsia.training.plan import TrainingPlan


def plan_of(data, settings=None, weight=None):
    settings = {"preset": "paper", "model": "mlp(6)", **(settings or {})}
    return TrainingPlan.of(data, None, None, settings, None, weight)


def test_a_network_is_made_once_and_an_origin_once_per_seed(small_data, monkeypatch):
    seeds, initialise = [], home.initialise

    def counted(model, shape, outputs, seed):
        seeds.append(seed)
        return initialise(model, shape, outputs, seed)

    monkeypatch.setattr(home, "initialise", counted)
    plan = plan_of(small_data, {"seeds": [3, 4]})
    assert seeds == []  # nothing is made before it is needed
    job = Job.of(plan, torch.device("cpu"))
    assert plan.key
    assert job.network is plan.network
    assert sorted(seeds) == [0, 3, 4]


def test_the_key_tells_what_is_asked_apart(small_data):
    keys = {
        plan_of(small_data, settings, weight).key
        for settings, weight in (
            ({}, None),
            ({"epochs": 7}, None),
            ({"seeds": [1]}, None),
            ({"objective": "qme"}, None),
            ({"model": "mlp(7)"}, None),
            ({}, torch.ones(len(small_data.train))),
        )
    }
    assert len(keys) == 6
    assert plan_of(small_data).key in keys


def test_what_was_chosen_for_the_data_is_said_by_presets_that_look_at_it(small_data):
    assert plan_of(small_data).choices is None
    choices = plan_of(small_data, {"preset": "auto", "model": "mlp"}).choices
    assert choices is not None
    assert choices.startswith("settings for 200 rows, 64 features, 4 classes: model mlp(")


def test_without_validation_samples_nothing_is_trained():
    data = ia.load_data("digits", validation=0)
    with pytest.raises(DataError, match="load it with validation above 0"):
        plan_of(data)


def test_a_module_that_no_validation_sample_can_judge_is_told_before_training(small_data):
    """Its loss would be nan, as if it had diverged."""
    first, *rest = small_data.catalogue
    data = dataclasses.replace(small_data, validation=small_data.validation.select([1, 2, 3]))
    for objective in ("xe", "smoothing(0.2)"):
        settings = {"objective": objective, "epochs": 1, "progress": False}
        with pytest.raises(DataError, match=f"module '{first}', so that none of its epochs"):
            ia.train(data, model="mlp(6)", **settings)
        alone = {"model": "mlp(6)", "partition": [[name] for name in rest]}
        assert len(ia.train(data, **alone, **settings)) == len(rest)
    plan_of(data)  # maximum entropy is judged by all others
