"""Recipes of the studies of many modules: one for all networks, changed by model and by arm."""

from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.errors import StudyError, nearest, shortened
from intarsia.studies.cells import Measured
from intarsia.studies.context import StudyContext
from intarsia.studies.maxent.shared.baselines import UNPRUNED
from intarsia.studies.options import check_flag
from intarsia.studies.plans import Plan
from intarsia.studies.study import OWN

# What the paper's scale trains with; options of the studies change any of it. Decay is decoupled
# from the gradient: with momentum 0.9, 0.005 shrinks weights as 0.0005 does where it is part of it.
RECIPE: dict[str, Any] = {
    "batch": 512,
    "learning_rate": 0.8,
    "schedule": "onecycle(0.2)",
    "optimiser": "sgd(decay=0.005)",
    "select": "last",
    "temperature": 1.0,
    "augment": "crop(4) + flip",
    "balance": 0.5,  # a rewarded sample counts 3 of ten classes, 9.95 of a hundred
    "epochs": 24,
    "precision": "bf16",
}
SMALL_RECIPE: dict[str, Any] = {
    **RECIPE,
    "batch": 64,
    "learning_rate": 1e-2,
    "schedule": "cosine",
    "optimiser": "adam",
    "augment": "none",
    "epochs": 2,
    "precision": "float32",
}
KINDS = ("joint", "modules")  # of networks, which may have settings of their own
# What wide networks with BatchNorm have otherwise, by validation samples, see
# benchmarks/experiments/cifar_choice.py; balanced batches were tried for vgg11 alone. An epoch of
# balanced(4) has half of the pictures.
BY_MODEL: dict[str, dict[str, Any]] = {
    "vgg11": {"learning_rate": 0.2, "modules": {"batches": "balanced(4)", "epochs": 48}},
    "resnet18(64)": {
        "batch": 256,
        "learning_rate": 0.2,
        "augment": "crop(4) + flip + cutout(8)",
        "epochs": 36,
        "modules": {"batches": "balanced(4)", "epochs": 72},
    },
}
# Options that both studies have beside the usual ones.
SHARED: dict[str, Any] = {
    "data_options": {"validation": 0.05},
    "objective": "me",  # of modules
    "joint_objective": "smoothing(0.1)",
    # Settings of the recipe that one model has otherwise; under joint or modules, of these alone.
    "by_model": {},
    "joint": {},  # settings of the recipe that joint networks have otherwise
    "calibration": 1000,  # validation samples for scales and offsets, at most; 0: no calibration
    "flips": True,  # answers are means over a picture and its mirror image
    "keep_banks": True,
}


def bank_plan(
    options: Mapping[str, Any],
    context: StudyContext,
    data: str,
    model: str,
    seed: int,
    sets: Sequence[Sequence[str]],
    *,
    arm: Mapping[str, Any] | None = None,
) -> Plan:
    """The modules of these sets: the study's recipe, changed for the model, then by the arm."""
    recipe = {**UNPRUNED, **_recipe(options, model, "modules"), **(arm or {})}
    objective = recipe.pop("objective", options["objective"])
    how = {"preset": options["preset"], "objective": objective}
    return context.plan(data, model, sets, seed, **how, **recipe)


def joint_plan(
    options: Mapping[str, Any],
    context: StudyContext,
    data: str,
    model: str,
    seed: int,
    classes: Sequence[str],
    longer: float = 1.0,
) -> Plan:
    """One network for these classes, by the same recipe, for `longer` times as many epochs."""
    shared = {**UNPRUNED, **_recipe(options, model, "joint")}
    recipe = {**shared, "objective": options["joint_objective"], **options["joint"]}
    recipe["preset"] = options["preset"]
    plan = context.plan(data, model, [classes], seed, **recipe)
    if longer == 1:
        return plan
    recipe["epochs"] = round(longer * (plan.recipe.epochs or 1))
    return context.plan(data, model, [classes], seed, **recipe)


def check_arms(options: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """By name, settings of the recipe that the arms of a study have otherwise; none is its own."""
    arms = options[key]
    if not arms or not all(isinstance(arm, Mapping) for arm in arms.values()):
        raise StudyError(
            f"option {key!r} is {shortened(arms)}: expected names with settings of the recipe, as "
            "in {plain: {}, weighted: {balance: 1.0}}"
        )
    for name, arm in arms.items():
        check_recipe(f"{key!r}, {name!r},", arm)
    return {str(name): dict(arm) for name, arm in arms.items()}


def check_recipe(where: str, recipe: Any) -> None:
    """Settings of a recipe that a study may be given; the objective is among them."""
    if not isinstance(recipe, Mapping):
        raise StudyError(f"option {where} is {shortened(recipe)}: expected settings of the recipe")
    for key in recipe:
        if key in OWN and key != "objective":
            raise StudyError(f"option {where} has {key!r}, which the study sets itself")


def check_options(options: Mapping[str, Any]) -> None:
    """What no other check sees: recipes by model, of joint networks, and two flags."""
    for model, recipe in options["by_model"].items():
        if model not in options["models"] and model not in BY_MODEL:
            raise StudyError(
                f"option 'by_model' has {model!r}, which is not among the models: "
                f"{nearest(model, options['models'])}"
            )
        where = f"'by_model', {model!r},"
        check_recipe(where, recipe)
        for kind in KINDS:
            check_recipe(f"{where} {kind!r},", recipe.get(kind, {}))
    check_recipe("'joint'", options["joint"])
    for key in ("flips", "keep_banks"):
        check_flag(options, key)


def mirrored(cells: Sequence[Measured]) -> list[str]:
    """What a table says of cells whose answers are means over pictures and mirror images."""
    if not any(cell.settings.get("flips") for cell in cells):
        return []
    return ["logits are means over a picture and its mirror image, of all networks alike"]


def _recipe(options: Mapping[str, Any], model: str, kind: str) -> dict[str, Any]:
    own = dict(options["by_model"].get(model, {}))
    kinds = {name: own.pop(name, {}) for name in KINDS}
    return {**options["recipe"], **own, **kinds[kind]}
