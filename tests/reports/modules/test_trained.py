"""How long training took, in words, whatever the recipe."""

from pathlib import Path
from typing import Any

import pytest

import intarsia as ia
from intarsia.reports.modules.trained import _course
from intarsia.training import Recipe

REWOUND = "weights were pruned and the weights left went back to their origin"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"preset": "released", "data": "mnist", "epochs": 20},
            f"two rounds of ten epochs, after each of which {REWOUND}, for a sparsity of 99% in "
            "the end; then came 20 epochs with these weights. A module stopped earlier once its "
            "validation loss had not improved for three epochs.",
        ),
        (
            {"sparsity": 0.995, "rounds": 3, "epochs": 1},
            f"three rounds of one epoch, after each of which {REWOUND}, for a sparsity of 99.5% in "
            "the end; then came one epoch with these weights.",
        ),
        (
            {"sparsity": 0.5, "rounds": 1, "epochs": 2, "patience": 1},
            f"one round of two epochs, after which {REWOUND}, for a sparsity of 50% in the end; "
            "then came two epochs with these weights. A module stopped earlier once its validation "
            "loss had not improved for one epoch.",
        ),
        ({"sparsity": 0, "epochs": 1}, "one epoch."),
        (
            {"pruning": "territory", "epochs": 4},
            "four epochs, in the territory of each module from the start.",
        ),
        (
            {"pruning": "territory(by='magnitude')", "epochs": 4},
            "one round of four epochs, after which each module kept its territory and the weights "
            "left went back to their origin; then came four epochs with these weights.",
        ),
    ],
)
def test_the_course_of_training(settings: dict[str, Any], told: str) -> None:
    recipe = Recipe.read(settings).resolve().as_dict()
    assert _course(recipe) == f" Training took {told}"


def test_a_recipe_that_says_nothing() -> None:
    assert _course({}) == ""


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::intarsia.errors.HealthWarning")
def test_what_modules_saw_is_said(tmp_path: Path) -> None:
    data = ia.load_data("digits", scale_on="train", classes=["0", "1"])
    settings = {"model": "mlp(4)", "epochs": 1, "sparsity": 0, "progress": False}
    apart = {"visibility": "own", "negatives": "noise(1.0)"}
    for given, said in (({"negatives": "none"}, False), (apart, True)):
        ia.report(ia.train(data, **settings, **given), data).save(tmp_path / "page.html")
        before = (tmp_path / "page.html").read_text().partition("The whole recipe")[0]
        assert (">visibility<" in before) is said
        assert ("noise(amount=1.0)" in before) is said
