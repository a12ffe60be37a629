"""Options of studies: what cannot be measured is refused before anything is trained."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_data import fake
from sklearn.datasets import load_digits

from intarsia.errors import StudyError
from intarsia.modules import Bank
from intarsia.studies import STUDIES, Measured, Plan, StudyContext, find_study
from intarsia.studies.options import option_text, readable, run_command

OURS = [  # those that train models on data
    name
    for name, study in STUDIES.items()
    if study.cells.__module__.startswith("intarsia.") and "models" in study.options("small")
]


@pytest.fixture(scope="module")
def context() -> StudyContext:
    """Data, but no banks: nothing may be trained here."""
    result = StudyContext(None, "cpu")  # type: ignore[arg-type]
    result.give(fake("table", 10, (5,)))
    result.give(fake("three", 3, (5,)))
    result.give(fake("pictures", 10, (1, 28, 28)))
    return result


@pytest.mark.parametrize(
    ("study", "given", "message"),
    [
        ("single", {"models": ["mlpp(3)"]}, "option 'models' has 'mlpp(3)'.*did you mean 'mlp'"),
        ("path", {"data": "table", "models": "lenet"}, "option 'models' has 'lenet'.*images"),
        ("sparsity", {"pair_models": ["mlp(0)"]}, "option 'pair_models' has 'mlp(0)'"),
        ("pairs", {"sizes": [2, 0]}, "option 'sizes' has 0: expected a whole number from 1"),
        ("pairs", {"pairs": 0}, "option 'pairs' is 0: expected a whole number from 1"),
        ("impact", {"pairs": True}, "option 'pairs' is True: expected a whole number from 1"),
        ("complete", {"operators": ["summ"]}, "option 'operators' has 'summ'.*did you mean 'sum'"),
        ("complete", {"operators": []}, "option 'operators' is empty"),
        ("complete", {"slow": ["tie"]}, "option 'slow' has 'tie'.*did you mean 'ties'"),
        ("complete", {"without": {"cnn": ["tie"]}}, "option 'without' has 'tie'"),
        ("complete", {"orders": 0}, "option 'orders' is 0: expected a whole number from 1"),
        ("complete", {"slow_orders": 0}, "option 'slow_orders' is 0"),
        ("temperature", {"orders": "x"}, "option 'orders' is 'x'"),
        ("temperature", {"operators": "summ"}, "option 'operators' has 'summ'"),
        ("temperature", {"temperatures": ["x"]}, "option 'temperatures' has 'x': expected numbers"),
        ("sparsity", {"operators": "summ"}, "option 'operators' has 'summ'"),
        ("sparsity", {"pair_sizes": [0]}, "option 'pair_sizes' has 0"),
        ("width", {"widths": ["a"]}, "option 'widths' has 'a': expected a whole number from 1"),
        ("complete", {"imp": "none"}, "option 'imp' has 'none': expected true, false, or both"),
        ("width", {"imp": [1]}, "option 'imp' has 1"),
        ("confusion", {"imp": [0]}, "option 'imp' has 0"),
        ("controls", {"imp": [None]}, "option 'imp' has None"),
        ("width", {"operators": "summ"}, "option 'operators' has 'summ'"),
        ("path", {"points": 8}, "option 'points' is 8: expected an odd number from 3"),
        ("path", {"points": 1}, "option 'points' is 1: expected an odd number from 3"),
        ("path", {"rows": 0}, "option 'rows' is 0: expected a whole number from 1"),
        ("confusion", {"pairs": 0}, "option 'pairs' is 0"),
        ("controls", {"operators": "summ"}, "option 'operators' has 'summ'"),
        ("unlearning", {"operators": "fisher"}, "option 'operators' has 'fisher', which needs"),
        ("unlearning", {"limit": 0}, "option 'limit' is 0"),
        ("continual", {"operators": "regmean"}, "'regmean', which needs samples.*expected one of"),
        ("continual", {"orders": 0}, "option 'orders' is 0"),
        ("continual", {"joint_orders": -1}, "option 'joint_orders' is -1.*from 0"),
        ("continual", {"batch": 0}, "option 'batch' is 0"),
        ("flow", {"forms": "symetric"}, "option 'forms' has 'symetric': did you mean 'symmetric'"),
        ("flow", {"units": "tahn"}, "option 'units' has 'tahn'.*did you mean 'tanh'"),
        ("flow", {"test_laws": []}, "option 'test_laws' is empty"),
        ("flow", {"train_laws": ["bernoulli(2)"]}, "option 'train_laws' has 'bernoulli(2)'"),
        ("flow", {"loss": "mae"}, "option 'loss' has 'mae'"),
        ("flow", {"widths": [0]}, "option 'widths' has 0"),
        ("flow", {"stack": 0}, "option 'stack' is 0"),
        ("flow", {"flow_samples": 64}, "option 'flow_samples' is 64"),
        ("flow", {"second_weights": [-1]}, "option 'second_weights' has -1"),
        ("flow", {"learning_rate": 0}, "option 'learning_rate' has 0"),
        ("graphs", {"encoders": "gnc"}, "option 'encoders' has 'gnc': did you mean 'gcn'"),
        ("graphs", {"protocols": "honst"}, "option 'protocols' has 'honst'"),
        ("graphs", {"controls": "3 hop"}, "option 'controls' has '3 hop'"),
        ("graphs", {"controls": "tau -1"}, "option 'controls' has 'tau -1'"),
        ("graphs", {"honest_arms": "XB"}, "option 'honest_arms' has 'XB'"),
        ("graphs", {"ranges": [[1, 0.1]]}, "option 'ranges' has [1, 0.1]"),
        ("graphs", {"grid": {"momentum": [0.9]}}, "option 'grid' has 'momentum'"),
        ("graphs", {"grid": {"dropout": 0.5}}, "option 'grid' has dropout 0.5: expected a list"),
        ("graphs", {"epochs": 0}, "option 'epochs' is 0"),
    ],
)
def test_what_cannot_be_measured_is_named(
    study: str, given: dict[str, Any], message: str, context: StudyContext
) -> None:
    one = find_study(study)
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(StudyError, match=pattern):
        one.plan(one.options("small", **given), context)


def test_all_rows_of_a_path_may_be_asked_for(context: StudyContext) -> None:
    study = find_study("path")
    assert study.plan(study.options("small", rows=None), context)[0].settings["rows"] is None


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("width", "apart")])
def test_a_cnn_reads_pictures_only(name: str, context: StudyContext) -> None:
    study = find_study(name)
    asked = {"data": ["table", "pictures"], "models": ["mlp(8)", "cnn"], "seeds": 1}
    if name == "sparsity":
        asked["pair_models"] = ["mlp(8)", "cnn"]
    cells = study.plan(study.options("small", **asked), context)
    result = {(c.settings["data"], c.settings["model"]) for c in cells}
    assert result == {("table", "mlp(8)"), ("pictures", "mlp(8)"), ("pictures", "cnn")}
    with pytest.raises(StudyError, match="no cell with these options"):
        study.plan(study.options("small", **{**asked, "data": "table", **only_cnn(name)}), context)


def only_cnn(name: str) -> dict[str, Any]:
    return {"models": ["cnn"], **({"pair_models": ["cnn"]} if name == "sparsity" else {})}


def test_pairs_that_do_not_fit_fall_out(context: StudyContext) -> None:
    for name, key in (("pairs", "sizes"), ("sparsity", "pair_sizes")):
        study = find_study(name)
        options = study.options("small", data="three", **{key: [1, 2]})
        cells = study.plan(options, context)
        assert {c.settings["size"] for c in cells if "size" in c.settings} == {1}


@pytest.fixture(scope="module")
def own_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    x, y = load_digits(return_X_y=True)
    kept = np.flatnonzero(y < 3)[:240]
    path: Path = tmp_path_factory.mktemp("data") / "my.npz"
    np.savez(path, x=x[kept], y=y[kept])
    return str(path)


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("cifar10", "cifar100")])
def test_a_data_file_of_one_s_own_is_known_by_its_path(
    name: str, own_file: str, context: StudyContext
) -> None:
    study = find_study(name)
    sizes = {"sizes": [1]} if "sizes" in study.scales["small"] else {}
    cells = study.plan(study.options("small", data=[own_file], **sizes), context)
    # `apart` names data by their name, and has the path beside it.
    assert {cell.settings.get("source", cell.settings["data"]) for cell in cells} == {own_file}


@pytest.mark.parametrize("name", ["single", "pairs"])
def test_a_data_file_of_one_s_own_is_measured(name: str, own_file: str) -> None:
    study, context = find_study(name), StudyContext(Given(), "cpu")
    sizes = {"sizes": [1]} if name == "pairs" else {}
    options = study.options("small", data=[own_file], seeds=1, models="mlp(8)", **sizes)
    cell = study.plan(options, context)[-1]
    table = study.tables([Measured(cell.settings, study.measure(cell, context))])[0]
    assert own_file in table.csv()


class Given:
    """Banks without a module: what is measured of them is read with the data."""

    def bank(self, plan: Plan) -> Bank:
        return Bank([])


def test_models_come_by_the_option_that_names_them(context: StudyContext) -> None:
    options = {"data": ["table"], "preset": "paper", "models": ["cnn"], "pair_models": ["shallow"]}
    assert list(readable(options, context, "pair_models")) == [("table", "shallow")]
    assert list(readable(options, context)) == []


def test_names_with_a_comma_are_written_so_that_they_are_read_as_one() -> None:
    study = find_study("base")
    options = study.options("paper", ways=["cross-entropy", "ME, public images"])
    command = run_command(study, options)
    assert """--set 'ways=["cross-entropy", "ME, public images"]'""" in command
    assert option_text(["mlp(8, dropout=0)", "vit"]) == "mlp(8, dropout=0),vit"
