"""Recipes: the presets' values, YAML, and an error for everything that cannot be used."""

import pytest
import yaml

from intarsia.errors import RecipeError
from intarsia.specs import Spec
from intarsia.training import PRESETS, Recipe

RELEASED_PRUNING = "magnitude(scope='layer', biases=True, ratios={'output': 0.5})"


def resolved(**settings):
    return Recipe.read(settings).resolve()


def values(recipe, *names):
    return tuple(getattr(recipe, name) for name in names)


@pytest.mark.parametrize(
    ("data", "model", "epochs", "rate", "sparsity", "temperature"),
    [
        ("mnist", "mlp", 20, 1e-3, 0.99, 5.0),
        ("fashion_mnist", "mlp(512, 256)", 20, 1e-3, 0.99, 5.0),
        ("mnist", "lenet", 15, 1e-3, 0.6, 1.0),
        ("har", "mlp", 25, 1e-4, 0.99, 5.0),
        ("yeast", "mlp", 25, 1e-4, 0.99, 5.0),
    ],
)
def test_paper(data, model, epochs, rate, sparsity, temperature):
    recipe = resolved(preset="paper", data=data, model=model)
    result = values(recipe, "epochs", "learning_rate", "sparsity", "temperature")
    assert result == (epochs, rate, sparsity, temperature)
    assert values(recipe, "pruning", "rounds", "pruning_epochs") == ("magnitude", 2, epochs)
    assert values(recipe, "keep_moments", "select", "patience") == (False, "accuracy", None)
    assert values(recipe, "batch", "schedule", "model") == (64, "constant", model)
    assert recipe.data_options == {}


@pytest.mark.parametrize(
    ("data", "model", "pruning_epochs", "epochs", "rate", "becomes"),
    [
        ("mnist", "mlp", 10, 20, 1e-3, {"hidden": [512], "dropout": 0.5}),
        ("fashion_mnist", "mlp", 10, 20, 1e-3, {"hidden": [512], "dropout": 0.5}),
        ("har", "mlp", 12, 25, 1e-4, {"hidden": [512], "dropout": 0.0}),
        ("yeast", "mlp", 12, 25, 1e-3, {"hidden": [256], "dropout": 0.2}),
        ("mnist", "lenet", 7, 15, 1e-3, None),
    ],
)
def test_released(data, model, pruning_epochs, epochs, rate, becomes):
    recipe = resolved(preset="released", data=data, model=model)
    result = values(recipe, "pruning_epochs", "epochs", "learning_rate")
    assert result == (pruning_epochs, epochs, rate)
    assert values(recipe, "pruning", "rounds", "temperature") == (RELEASED_PRUNING, 2, 5.0)
    assert values(recipe, "keep_moments", "select", "patience") == (True, "last", 3)
    assert recipe.model == ({"name": "mlp", **becomes} if becomes else model)


def test_released_without_pruning_keeps_the_best_loss_and_drops_less():
    recipe = resolved(preset="released", data="mnist", sparsity=0)
    assert values(recipe, "rounds", "select") == (0, "loss")
    assert recipe.model["dropout"] == 0.3
    assert recipe.data_options == {"scale": "signed"}


def test_released_leaves_a_model_with_settings_as_it_is():
    recipe = resolved(preset="released", model="mlp(100, dropout=0.1)")
    assert recipe.model == "mlp(100, dropout=0.1)"


def test_what_is_given_wins():
    recipe = resolved(preset="released", epochs=9, sparsity=0.5, patience=8, temperature=2.0)
    assert values(recipe, "epochs", "pruning_epochs", "sparsity") == (9, 4, 0.5)
    assert values(recipe, "patience", "temperature") == (8, 2.0)
    options = resolved(preset="released", data="mnist", data_options={"seed": 3}).data_options
    assert options == {"scale": "signed", "seed": 3}


@pytest.mark.parametrize("settings", [{"sparsity": 0}, {"rounds": 0}])
def test_no_rounds_is_no_sparsity(settings):
    assert values(resolved(**settings), "rounds", "sparsity") == (0, 0)


@pytest.mark.parametrize(
    ("pruning", "rounds"),
    [
        ("territory", 0),
        ("territory(by='magnitude')", 1),
        ({"name": "territory", "by": "magnitude"}, 1),
        (Spec("territory"), 0),
    ],
)
def test_a_territory_has_its_own_rounds(pruning, rounds):
    assert values(resolved(pruning=pruning), "rounds", "sparsity") == (rounds, 0.0)


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("data", ["mnist", "har", "yeast", "digits"])
def test_a_resolved_recipe_is_its_own_resolution_and_survives_yaml(tmp_path, preset, data):
    recipe = resolved(preset=preset, data=data)
    assert recipe.resolve().as_dict() == recipe.as_dict()
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe.as_dict()))
    again = Recipe.load(path)
    assert again.resolve().as_dict() == recipe.as_dict()
    assert again.resolve().digest() == recipe.digest()


# of recipes as they were before there was a choice of batches
DIGESTS = {
    "me": "6ee8d70b971109bdc9d0f7f682c06a890bf7afec7f7ea4f599e8e8ce285398a1",
    "qme": "ad9367559da2a6bbfe71335aa0c6d9b5c9bc8a05a03b514c8e3fb8ca9503489c",
    "other": "31e3592cbf1feaab66225b6b11fa97f6d0b11c6f4afaeccb82d380f5b429a805",
    "xe": "3e530007122bab3f9c75b7fa1a710a85e0a16ac02fa55cb37a588e1e2cdf0530",
}


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize(
    "goal",
    ["xe", "smoothing(0.2)", "confidence_penalty", "me(reward=0)", "me(order=[2, 1, 0])"],
)
def test_batches_are_of_the_samples_shown_where_labels_are_hidden(preset, goal):
    recipe = resolved(preset=preset, objective=goal)
    assert recipe.batches == recipe.as_dict()["batches"] == "shown"
    merged = resolved(preset=preset, objective=goal, batches="all")
    assert merged.batches == merged.as_dict()["batches"] == "all"
    assert merged.digest() != recipe.digest()
    for each in (recipe, merged):
        assert Recipe.read(each.as_dict()).resolve().digest() == each.resolve().digest()
        assert Recipe.read(each.as_dict()).resolve().batches == each.batches


@pytest.mark.parametrize("batches", [None, "all", "shown"])
@pytest.mark.parametrize("goal", ["me", "me(reward=9)", "qme", "other", {"name": "me"}])
def test_there_is_no_choice_of_batches_where_every_label_is_shown(goal, batches):
    recipe = resolved(objective=goal, batches=batches)
    assert recipe.batches is None
    assert "batches" not in recipe.as_dict()
    assert "batches" not in Recipe().as_dict()
    hidden = Recipe.read({**recipe.as_dict(), "objective": "xe"}).resolve()
    assert hidden.batches == "shown"


def test_what_a_file_says_of_batches_holds_for_an_objective_given_later(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("batches: all")
    settings = {**Recipe.load(path).as_dict(), "objective": "xe"}
    assert Recipe.read(settings).resolve().batches == "all"


@pytest.mark.parametrize("goal", list(DIGESTS))
def test_older_digests_stay(goal):
    paper = {"preset": "paper", "objective": goal}
    assert resolved(**paper, batches="all").digest() == DIGESTS[goal]
    assert (resolved(**paper).digest() == DIGESTS[goal]) == (goal != "xe")


def test_yaml_as_people_write_it(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "data: yeast\nmodel: {name: mlp, hidden: [64, 32]}\nlearning_rate: 1e-3\n"
        "seeds: [0, 1]\npartition: [[CYT, NUC], [MIT]]\n"
    )
    recipe = Recipe.load(path).resolve()
    assert recipe.learning_rate == 0.001  # YAML 1.1 reads 1e-3 as text
    assert recipe.model == {"name": "mlp", "hidden": [64, 32]}
    assert recipe.partition == [["CYT", "NUC"], ["MIT"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sparcity: 0.9", "no setting 'sparcity': did you mean 'sparsity'"),
        ("batchs: all", "no setting 'batchs': did you mean 'batches'"),
        ("- 1\n- 2", "must hold `key: value` lines, got list"),
        ("a: [", "not valid YAML"),
        ("data_options: 5", "data_options is 5: expected a mapping"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message):
        Recipe.load(path).resolve()


def test_an_empty_file_is_the_default_recipe(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert Recipe.load(tmp_path / "empty.yaml") == Recipe()
    with pytest.raises(RecipeError, match=r"cannot read the recipe .*none\.yaml"):
        Recipe.load(tmp_path / "none.yaml")


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 0),
        ("epochs", 2.5),
        ("epochs", "many"),
        ("epochs", True),
        ("pruning_epochs", 0),
        ("rounds", -1),
        ("rounds", 1.0),
        ("batch", 0),
        ("sparsity", 1.0),
        ("sparsity", -0.1),
        ("sparsity", "most"),
        ("learning_rate", -1e-3),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("temperature", 0),
        ("batches", 64),
        ("schedule", 0.5),
        ("optimiser", True),
        ("select", "best"),
        ("patience", 0),
        ("patience", 1.5),
        ("keep_moments", "yes"),
        ("seeds", []),
        ("seeds", None),
        ("seeds", 3),
        ("seeds", [0, 0]),
        ("seeds", [-1]),
        ("seeds", ["0"]),
        ("data_options", [1]),
        ("data_options", None),
        ("partition_seed", -1),
        ("partition_seed", None),
        ("objective", None),
        ("model", None),
        ("model", 5),
        ("pruning", 0.9),
    ],
)
def test_every_bad_value_is_named(preset, key, value):
    with pytest.raises(RecipeError, match=f"{key} is "):
        resolved(preset=preset, **{key: value})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "papre"}, "unknown preset 'papre': did you mean 'paper'"),
        ({"preset": ["paper"]}, "unknown preset"),
        ({"objective": "mee"}, "unknown objective 'mee': did you mean 'me'"),
        ({"batches": "own"}, "unknown batches 'own': did you mean 'shown'"),
        ({"batches": "balanced"}, "batches 'balanced' needs amount"),
        ({"batches": "balanced(0)"}, "balanced has amount 0: expected a number above 0"),
        ({"batches": "balanced(2, corrected=1)"}, "balanced has corrected 1: expected true or"),
        ({"schedule": "linear"}, "unknown schedule 'linear'"),
        ({"schedule": "onecycle(2)"}, "onecycle has warmup 2: expected a number from 0 to 1"),
        ({"schedule": "onecycle(end=-1)"}, "onecycle has end -1: expected a number from 0 to 1"),
        ({"optimiser": "adamx"}, "unknown optimiser 'adamx': did you mean 'adam"),
        ({"optimiser": "adamw(-1)"}, "optimiser: decay is -1: expected a number from 0"),
        ({"optimiser": "sgd(momentum=1)"}, "momentum is 1: expected a number from 0 to below 1"),
        ({"optimiser": "sgd(nesterov=1)"}, "nesterov is 1: expected true or false"),
        ({"optimiser": "adam(0.9)"}, "optimiser 'adam' takes at most 0 arguments"),
        ({"rounds": 0, "sparsity": 0.9}, "rounds is 0, which prunes nothing, but sparsity is 0.9"),
        ({"pruning": "territory", "sparsity": 0.9}, "how much territory prunes follows"),
        ({"model": object()}, "model is <object"),
        ({"data_options": {"classes": object()}}, "text, numbers and lists"),
    ],
)
def test_says_what_does_not_go(settings, message):
    with pytest.raises(RecipeError, match=message):
        resolved(**settings)


@pytest.mark.parametrize(
    ("pruning", "said"),
    [("magnitude(scope=layer)", "cannot read the pruning"), ("magnitud", "did you mean")],
)
def test_a_pruning_that_cannot_be_read_fails_before_anything_is_trained(pruning, said):
    with pytest.raises(RecipeError, match=said):
        Recipe(pruning=pruning).resolve()
