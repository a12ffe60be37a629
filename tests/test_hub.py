"""Folders that travel: bit-equal round trips, cards, and a stand-in for the hub."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from intarsia.composition import Composition, compose
from intarsia.errors import FileError
from intarsia.estimator import EstimatorError, ModularClassifier
from intarsia.hub import from_pretrained, push_to_hub, save_pretrained
from intarsia.modules import Module


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    return load_digits(n_class=4, return_X_y=True)


@pytest.fixture(scope="module")
def classifier(digits: Any) -> ModularClassifier:
    """Fitted on three classes, one of which was taken out."""
    x, y = digits
    model = ModularClassifier("mlp(16, dropout=0.0)", epochs=3, random_state=0)
    model.fit(x[y < 3], np.array(["zero", "one", "two"])[y[y < 3]])
    model.remove_class("one")
    return model


def test_a_classifier_comes_back_bit_for_bit(
    classifier: ModularClassifier, digits: Any, tmp_path: Path
) -> None:
    x, y = digits
    classifier.save_pretrained(tmp_path)
    again = ModularClassifier.from_pretrained(tmp_path)
    assert again.get_params() == classifier.get_params()
    assert again.classes_.tolist() == ["two", "zero"]
    assert again.classes_.dtype == classifier.classes_.dtype
    assert np.array_equal(again.predict_proba(x), classifier.predict_proba(x))
    assert np.array_equal(again.predict(x, abstain=True), classifier.predict(x, abstain=True))
    assert torch.equal(again.background_.train.x, classifier.background_.train.x)
    save_pretrained(classifier, tmp_path / "copy")
    copy = ModularClassifier.from_pretrained(tmp_path / "copy")
    for model in (again, copy):
        model.add_class(x[y == 3], "three")
    assert np.array_equal(again.predict_proba(x), copy.predict_proba(x))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 5]),
        np.array([0.0, 2.0]),
        np.array([False, True]),
        np.array(["a", "b"], dtype=object),
        np.array([2, 250], dtype=np.uint8),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_come_back_as_they_were(labels: np.ndarray, digits: Any, tmp_path: Path) -> None:
    x, y = digits
    some = y < 2
    model = ModularClassifier("mlp(4)", epochs=1, random_state=np.random.RandomState(0))
    model.fit(x[some], labels[y[some]]).save_pretrained(tmp_path)
    again = ModularClassifier.from_pretrained(tmp_path)
    assert again.classes_.dtype == labels.dtype
    assert [type(v) for v in again.classes_.tolist()] == [type(v) for v in labels.tolist()]
    assert np.array_equal(again.predict(x), model.predict(x))


def test_names_of_features_and_a_factory_of_ones_own(digits: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = digits
    frame = pandas.DataFrame(x, columns=[f"pixel {i}" for i in range(64)])
    model = ModularClassifier(_linear, epochs=1, random_state=0).fit(frame, y)
    model.save_pretrained(tmp_path)
    with pytest.raises(FileError, match="factory"):
        from_pretrained(tmp_path)
    again = ModularClassifier.from_pretrained(tmp_path, model=_linear)
    assert again.feature_names_in_.tolist() == list(frame.columns)
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_the_background_can_stay_behind(
    classifier: ModularClassifier, digits: Any, tmp_path: Path
) -> None:
    x, y = digits
    classifier.save_pretrained(tmp_path)
    assert (tmp_path / "background.safetensors").exists()
    classifier.save_pretrained(tmp_path, background=False)
    assert not (tmp_path / "background.safetensors").exists()
    again = ModularClassifier.from_pretrained(tmp_path)
    assert np.array_equal(again.predict(x, abstain=True), classifier.predict(x, abstain=True))
    again.add_class(x[y == 3], "three")  # against what is made up from its own rows
    assert again.classes_.tolist() == ["three", "two", "zero"]
    again = ModularClassifier.from_pretrained(tmp_path)
    again.add_class(x[y == 3], "three", background=x[y < 3])
    assert again.classes_.tolist() == ["three", "two", "zero"]


def test_rows_that_an_operator_holds_do_not_leave_unasked(digits: Any, tmp_path: Path) -> None:
    x, y = digits
    model = ModularClassifier("mlp(8)", operator="regmean", epochs=1, random_state=0)
    model.fit(x[y < 2], y[y < 2])
    with pytest.raises(FileError, match="rows of data, which go with it"):
        model.save_pretrained(tmp_path / "without", background=False)
    assert not (tmp_path / "without").exists()
    model.save_pretrained(tmp_path)
    again = ModularClassifier.from_pretrained(tmp_path)
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))


def test_modules_and_compositions_travel_too(classifier: ModularClassifier, tmp_path: Path) -> None:
    module, merged = classifier.modules_[0], classifier.composition_
    save_pretrained(module, tmp_path / "module")
    save_pretrained(merged, tmp_path / "composition")
    one, many = (from_pretrained(tmp_path / name) for name in ("module", "composition"))
    assert isinstance(one, Module)
    assert one.digest == module.digest
    assert isinstance(many, Composition)
    assert [part.digest for part in many.parts] == [part.digest for part in merged.parts]
    with pytest.raises(EstimatorError, match="Composition"):
        ModularClassifier.from_pretrained(tmp_path / "composition")


def test_the_card_tells_what_is_known(classifier: ModularClassifier, tmp_path: Path) -> None:
    classifier.save_pretrained(tmp_path)
    _, front, text = (tmp_path / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "intarsia"
    for piece in (
        "`zero`",
        "No module recognises `one`",
        "Joined by `inlay`",
        f"{classifier.novelty_.threshold:.4g}",
        f"{classifier.modules_[0].nonzero} of {classifier.modules_[0].parameters}",
        "- epochs: `3`",
        classifier.modules_[0].provenance["data"]["digest"],
        "intarsia.from_pretrained('path/to/this/folder')",
    ):
        assert piece in text
    save_pretrained(classifier.modules_[0], tmp_path / "module")
    assert "# Module for `two`" in (tmp_path / "module" / "README.md").read_text()


def test_what_is_pushed_is_what_is_saved(
    classifier: ModularClassifier, hub: SimpleNamespace, tmp_path: Path
) -> None:
    address = classifier.push_to_hub("me/digits", token="secret", private=True)
    assert address == "https://huggingface.co/me/digits"
    (made, uploaded) = hub.calls
    assert made == ("create_repo", "me/digits", {"exist_ok": True, "private": True})
    assert uploaded[1] == "me/digits"
    names = {path.name for path in hub.folder.iterdir()}
    assert names == {"composition.safetensors", "config.json", "README.md"}
    assert "from_pretrained('me/digits')" in (hub.folder / "README.md").read_text()
    assert b"secret" not in (hub.folder / "config.json").read_bytes()
    again = from_pretrained("me/digits", revision="main")
    assert isinstance(again, ModularClassifier)
    assert again.composition_.parts[0].digest == classifier.composition_.parts[0].digest
    assert hub.calls[-1][2]["revision"] == "main"
    push_to_hub(classifier, "me/digits", background=True)
    assert "background.safetensors" in {path.name for path in hub.folder.iterdir()}


def test_samples_of_a_composition_are_not_pushed_unasked(
    classifier: ModularClassifier, hub: SimpleNamespace, digits: Any
) -> None:
    x, _ = digits
    merged = compose(classifier.modules_, "logits", samples=x[:20])
    with pytest.raises(FileError, match="20 rows of data, which go with it"):
        push_to_hub(merged, "me/digits")
    assert not hub.calls
    push_to_hub(merged, "me/digits", background=True)
    again = from_pretrained("me/digits")
    assert isinstance(again, Composition)
    assert again.samples is not None


def test_troubles_with_the_hub_are_told(
    classifier: ModularClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **settings: Any) -> None:
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=fail))
    with pytest.raises(FileError, match=r"not a folder here.*no network"):
        from_pretrained("nobody/nothing")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: from_pretrained("a/b"), lambda: classifier.push_to_hub("a/b")):
        with pytest.raises(FileError, match=r'pip install "intarsia\[hub\]"'):
            call()


def test_mistakes_and_damage_are_named(classifier: ModularClassifier, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="dict cannot be saved"):
        save_pretrained({}, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        ModularClassifier().save_pretrained(tmp_path)
    with pytest.raises(FileError, match="save_pretrained made"):
        from_pretrained(tmp_path)
    classifier.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    state = config["classifier"]
    for broken, message in (
        ({**config, "version": 9}, "it is not of"),
        ({**config, "kind": ["module"]}, "it is not of"),
        ({**config, "more": 1}, "unknown more"),
        ({**config, "background": "0" * 64}, "not the background"),
        ({**config, "classifier": 3}, "not a mapping"),
        ({**config, "classifier": {**state, "seed": "x"}}, "'seed'"),
        ({**config, "classifier": {**state, "features": 3}}, "3 features"),
        ({**config, "classifier": {**state, "parameters": {}}}, "lacks"),
        (
            {**config, "classifier": {**state, "labels": {"type": "<i8", "values": [1, 2, 3]}}},
            "not those of its modules",
        ),
        ({**config, "classifier": {**state, "labels": {"type": "<i8"}}}, "labels cannot be read"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(broken))
        with pytest.raises(FileError, match=message):
            from_pretrained(tmp_path)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A stand-in for huggingface_hub that records calls and keeps one repository in a folder."""
    record = SimpleNamespace(calls=[], folder=tmp_path / "repository")

    class HfApi:
        def __init__(self, token: str | None = None) -> None:
            self.token = token

        def create_repo(self, repo_id: str, **settings: Any) -> None:
            record.calls.append(("create_repo", repo_id, settings))

        def upload_folder(self, *, repo_id: str, folder_path: str, **settings: Any) -> None:
            record.calls.append(("upload_folder", repo_id, settings))
            shutil.copytree(folder_path, record.folder, dirs_exist_ok=True)

    def snapshot_download(repo_id: str, **settings: Any) -> str:
        record.calls.append(("snapshot_download", repo_id, settings))
        return str(record.folder)

    stand_in = SimpleNamespace(HfApi=HfApi, snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    return record


def _linear(shape: tuple[int, ...], outputs: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[0], outputs))


def test_a_change_travels_with_its_base(classifier: ModularClassifier, tmp_path: Path) -> None:
    start = classifier.composition_.parts[0]
    moved = {**start.state, "layers.0.bias": start.state["layers.0.bias"] + 1}
    module = Module.of(
        moved,
        rewarded=start.rewarded,
        catalogue=start.catalogue,
        shape=start.architecture.shape,
        model=start.architecture.model,
        base=start,
    )
    save_pretrained(module, tmp_path)
    loaded = from_pretrained(tmp_path)
    assert isinstance(loaded, Module)
    assert loaded.digest == module.digest
    card = (tmp_path / "README.md").read_text()
    assert "weights changed" in card
    assert f"changes of the base `{start.name}`" in card
