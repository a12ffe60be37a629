"""A user's own data and networks on the command line, from training to the report."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine

import intarsia as ia
from intarsia.cli.common_options import read_target

pytestmark = pytest.mark.usefixtures("one_thread")

CLI = CommandLine()
call, answer, refusal = CLI.call, CLI.answer, CLI.refusal
SHORT = ["--sparsity", "0.5", "--epochs", "4", "--learning-rate", "0.01"]
NAMES = ("C++", "a, b", "C", "grün")
FACTORY = """
from torch import nn

def tiny(shape, outputs):
    return nn.Sequential(nn.Linear(shape[0], 8), nn.ReLU(), nn.Linear(8, outputs))

ready = tiny((2,), 2)
"""


def table(path: Path, names: tuple[str, ...] = NAMES, gaps: bool = False) -> Path:
    """The class comes first; the last column would do as one."""
    rng = np.random.default_rng(0)
    rows = ["kind,one,two"]
    for i in range(160):
        a, b = rng.normal(i % len(names), 0.1), i % 2
        rows.append(f'"{names[i % len(names)]}",{"" if gaps and i % 9 == 4 else a},{b}')
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def trained(here: Path) -> Path:
    table(here / "own.csv")
    call("train", "bank", "--data", "own.csv", "--target", "kind", "--model", "mlp(8)", *SHORT)
    return here / "bank"


def test_the_target_is_remembered_by_every_verb(trained: Path, tmp_path: Path) -> None:
    assert "target: kind" in (trained / "recipe.yaml").read_text()
    result = answer("evaluate", trained)
    assert result["trained_on_this_data"] is True
    bank = ia.Bank.load(trained)
    data = ia.load_data("own.csv", target="kind")
    assert result["models"]["C++"] == ia.evaluate(bank["C++"], data.test).to_json()
    # The same table elsewhere, which nothing but the modules says how to read.
    moved = tmp_path / "moved.csv"
    (tmp_path / "own.csv").rename(moved)
    for words in (["--data", moved], ["--data", moved, "--target", 0]):
        assert answer("evaluate", trained, *words)["trained_on_this_data"] is True
    merged = tmp_path / "whole.safetensors"
    for words in ([], ["--target", "kind"]):
        made = answer(
            "compose", trained, "-o", merged, "--operator", "regmean", "--samples", moved, *words
        )
        assert made["samples"] == len(data.validation)
        matrix = answer("compatibility", trained, "--samples", moved, *words)
        assert matrix == ia.compatibility_matrix(bank, data).to_json()
        a, b = (trained / row["file"] for row in answer("inspect", trained)["modules"][:2])
        assert answer("path", a, b, "--points", 3, "--data", moved, *words)["data"] == "moved"
        call("report", trained, "-o", tmp_path / "r.html", "--data", moved, *words)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "--target kind" in page
    assert "<span>one</span>" in page
    assert answer("data", moved, "--target", -3)["catalogue"] == list(data.catalogue)
    said = refusal("evaluate", trained, "--data", moved, "--target", "knid")
    assert "did you mean 'kind'" in said
    assert "name them with --samples" in call(
        "compose", trained, "-o", merged, "--target", 0, code=2
    ).stderr.replace("\n", " ")


def test_a_column_whose_name_is_a_number_stands_in_quotes(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"{'ab'[i % 2]},{i},{i * i % 7}" for i in range(40)]
    path.write_text("\n".join(["7,1,2", *rows]))
    assert answer("data", path, "--target", "'7'")["catalogue"] == ["a", "b"]
    assert "no column 7" in refusal("data", path, "--target", "7")


def test_class_names_with_plus_and_comma(trained: Path, tmp_path: Path) -> None:
    assert set(ia.Bank.load(trained).names) == set(NAMES)
    out = tmp_path / "rest.safetensors"
    made = answer("compose", trained, "-o", out, "--without", "C++", "--without", "a, b")
    assert made["rewarded"] == ["C", "grün"]
    result = answer("evaluate", trained, "--rewarded", "'C++',\"a, b\"")
    assert result["models"]["C"]["rewarded"] == ["C++", "a, b"]
    said = refusal("evaluate", trained, "--rewarded", "C++")
    assert "are quoted" in said
    words = ["--data", "own.csv", "--target", "kind", "--partition", "'C++'+C,\"a, b\"+grün"]
    call("train", "pairs", *words, "--model", "mlp(8)", *SHORT)
    pairs = ia.Bank.load(tmp_path / "pairs")
    assert pairs.names == ('"C++"+C', '"a, b"+grün')
    assert pairs['"C++"+C'].rewarded == ("C++", "C")
    assert all(path.name.isascii() for path in (tmp_path / "pairs").iterdir())
    made = answer("compose", "pairs", "-o", out, "--without", '"C++"+C')
    assert made["rewarded"] == ["a, b", "grün"]


def test_a_class_that_reads_like_a_set_is_told_apart(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", ("a", "b", "a+b"))
    out = tmp_path / "bank"
    words = ["--data", path, "--target", "kind", "--model", "mlp(8)", *SHORT]
    call("train", out, *words, "--partition", "a+b,'a+b'")
    bank = ia.Bank.load(out)
    assert bank.names == ("a+b", '"a+b"')
    assert [module.rewarded for module in bank] == [("a", "b"), ("a+b",)]


def test_missing_values_are_filled_as_in_training(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", ("a", "b"), gaps=True)
    out = tmp_path / "bank"
    words = ["train", out, "--data", path, "--target", "kind", "--model", "mlp(8)", *SHORT]
    assert "line 6, column 'one'" in refusal(*words)
    call(*words, "--set", "data_options={missing: median}")
    assert answer("evaluate", out)["trained_on_this_data"] is True
    other = tmp_path / "other.csv"
    other.write_text("\n".join(["kind,one,two", *["a,,1", "b,,0"] * 10]))
    module = ia.Bank.load(out)["a"]
    fill = module.provenance["data"]["fill"]
    rows = np.array([[fill[0], 1.0], [fill[0], 0.0]])
    score = answer("evaluate", out, "--data", other, "--split", "all")["models"]["a"]
    expected = ia.evaluate(module.to_module(), ia.data.Split(*_tensors(rows, [0, 1])))
    assert score["accuracy"] == expected.accuracy
    assert score["entropy"] == pytest.approx(expected.entropy)


def test_columns_must_come_in_the_order_of_training(tmp_path: Path) -> None:
    """By their place alone, features of another order would be taken for one another."""
    rows = [(i % 5 + 9 * (i % 2), i % 7, "ab"[i % 2]) for i in range(60)]

    def save(name: str, heads: str, order: tuple[int, ...]) -> Path:
        lines = [",".join(str(row[i]) for i in order) for row in rows]
        (tmp_path / name).write_text("\n".join([heads, *lines]))
        return tmp_path / name

    path = save("own.csv", "one,two,kind", (0, 1, 2))
    turned = save("turned.csv", "two,one,kind", (1, 0, 2))
    wide = save("wide.csv", "one,two,three,kind", (0, 1, 1, 2))
    renamed = save("renamed.csv", "one,zwei,kind", (0, 1, 2))
    out, other = tmp_path / "bank", tmp_path / "other"
    for folder, table in ((out, path), (other, turned)):
        call("train", folder, "--data", table, "--model", "mlp(8)", *SHORT)
    assert ia.Bank.load(out)["a"].provenance["data"]["columns"] == ["one", "two"]
    said = "['two', 'one'], not ['one', 'two']"
    assert said in refusal("evaluate", out, "--data", turned)
    assert said in refusal("evaluate", out, "--unknown", turned)
    assert said in refusal("report", out, "--data", turned, "-o", tmp_path / "own.html")
    to = ["-o", tmp_path / "merged.safetensors"]
    assert said in refusal("compose", out, *to, "--samples", turned, "--calibrate")
    pair = [out / "a.safetensors", other / "b.safetensors"]
    assert said in refusal("compose", *pair, *to, "--operator", "logits")
    assert "reads ['one', 'two']; give these" in refusal("evaluate", out, "--data", wide)
    assert answer("evaluate", out, "--data", path)["trained_on_this_data"] is True
    assert "look whether they are the same" in call("evaluate", out, "--data", renamed).stderr
    merged = ia.compose(ia.Bank.load(out))
    for model in (merged, merged.parts[0], merged.parts[0].to_module()):
        with pytest.raises(ia.errors.DataError, match="bring the columns into one order"):
            ia.evaluate(model, ia.load_data(turned).test)


def test_a_data_frame_is_answered_in_the_order_of_training() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [(i % 5 + 9.0 * (i % 2), float(i % 7)) for i in range(60)]
    frame = pandas.DataFrame(rows, columns=["one", "two"])
    labelled = frame.assign(kind=["ab"[i % 2] for i in range(60)])
    data = ia.load_data(labelled, target="kind")
    bank = ia.train(data, model="mlp(8)", rounds=0, epochs=2, progress=False)
    turned = frame[["two", "one"]]
    for model in (bank[0].to_module(), ia.compose(bank)):
        assert model.columns == ("one", "two")
        expected = model.predict(frame.to_numpy())
        assert model.predict(frame).equal(expected)
        assert model.predict(turned[list(model.columns)]).equal(expected)
        with pytest.raises(ia.errors.DataError, match=r"as x\[list\(model.columns\)\] does"):
            model.predict(turned)
        # Other names may mean the same columns.
        renamed = frame.rename(columns={"two": "zwei"})
        assert model.predict(renamed).equal(expected)


def _tensors(x: np.ndarray, y: list[int]) -> Any:
    import torch

    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def test_options_of_the_data_are_set_like_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path / "own.csv", ("a", "b"), gaps=True)
    words = ["--data", path, "--target", "kind", "--set", "missing=mean", "--set", "drop=two"]
    plan = answer("train", "--dry-run", *words, "--model", "mlp(8)")
    assert plan["recipe"]["data_options"] == {"drop": "two", "missing": "mean", "target": "kind"}
    assert plan["size"]["features"] == 1
    assert "did you mean 'seeds'" in refusal("train", "out", *words, "--set", "seed=1")
    for given, said in (
        ([path, "out"], "train out --data"),
        (["digits", "out"], "train out --data digits"),
        ([path], "train OUT --data"),
    ):
        assert said in " ".join(call("train", *given, code=2).stderr.split())


def test_a_confusion_of_many_classes_becomes_a_list(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", tuple(f"a class of number {n}" for n in range(16)))
    words = ["--data", path, "--target", "kind", "--model", "mlp(4)", "--set", "sparsity=0"]
    call("train", tmp_path / "bank", *words, "--epochs", 1)
    call("compose", tmp_path / "bank", "-o", tmp_path / "whole.safetensors")
    said = call("evaluate", tmp_path / "whole.safetensors", "--confusion").stdout
    assert "true class by answer" not in said
    score = answer("evaluate", tmp_path / "whole.safetensors")["models"]["composition"]
    counts = np.array(score["confusion"])
    wrong = counts.sum() - counts.trace()
    assert f"composition: {wrong} mistakes of " in said


def test_files_of_other_kinds_are_not_written(trained: Path) -> None:
    said = refusal("compose", trained, "-o", "whole.onnx")
    assert "give -o whole.safetensors" in said
    assert "name it page.html" in refusal("report", trained, "-o", "page.pdf")


def test_a_latin_1_table_is_read_with_a_note(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", ("grün", "blau"))
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    run = call("data", path, "--target", "kind", "--json")
    assert json.loads(run.stdout)["catalogue"] == ["blau", "grün"]
    assert run.stderr.startswith("note: ")
    assert "was read as latin-1" in run.stderr
    quiet = call("data", path, "--target", "kind", "--set", "encoding=latin-1")
    assert quiet.stderr == ""


def test_what_a_message_lists_is_what_an_option_takes(trained: Path, tmp_path: Path) -> None:
    said = refusal("evaluate", trained, "--rewarded", "a, b")
    listed = said.partition("known: ")[2].replace("C++", "'C++'")
    result = answer("evaluate", trained, "--rewarded", listed)
    assert sorted(result["models"]["C"]["rewarded"]) == sorted(NAMES)
    whole = tmp_path / "whole.safetensors"
    assert '"a, b"' in call("compose", trained, "-o", whole).stdout
    more = table(tmp_path / "more.csv", ("a, b", "C", "new"))
    said = refusal("evaluate", whole, "--data", more)
    words = shlex.split(said[said.index("--set") :])
    assert answer("evaluate", whole, "--data", more, *words)["models"]


def test_advice_on_columns_can_be_typed(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"x{i},it's {i},{i % 5},{'ab'[i % 2]}" for i in range(40)]
    path.write_text("\n".join(["colour, big,its name,size,kind".replace(", ", " "), *rows]))
    said = refusal("data", path)
    shown = said[said.index("--set") : said.index("), or name")]
    assert answer("data", path, *shlex.split(shown))["catalogue"] == ["a", "b"]


def test_columns_that_only_the_training_data_had_are_explained(here: Path) -> None:
    table(here / "own.csv")
    words = ["--data", "own.csv", "--target", "kind", "--set", "drop=two", "--model", "mlp(8)"]
    call("train", "bank", *words, *SHORT)
    lines = (here / "own.csv").read_text(encoding="utf-8").splitlines()
    other = here / "other.csv"
    other.write_text("\n".join(line.rpartition(",")[0] for line in lines), encoding="utf-8")
    said = refusal("evaluate", "bank", "--data", other)
    shown = said[said.index("--set") :].split()
    assert answer("evaluate", "bank", "--data", other, *shown)["models"]


def test_pictures_are_not_trained_into(here: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (here / "pictures" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 255, (4, 4), np.uint8)
            image.fromarray(pixels).save(here / "pictures" / name / f"{i}.png")
    before = sorted(here.rglob("*"))
    short = ["--model", "mlp(8)", "--epochs", "1"]
    said = call("train", "pictures", *short, code=2).stderr
    assert "--data pictures" in said
    refusal("train", "pictures", "--data", "pictures/", *short)
    with pytest.raises(ia.errors.TrainingError, match="folder of the data"):
        ia.train("pictures", out="pictures/", model="mlp(8)", epochs=1)
    assert sorted(here.rglob("*")) == before
    call("train", "pictures/modules", "--data", "pictures", *short)


def test_images_and_parquet_train(here: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    for number in range(40):
        place = here / "photos" / ("light" if number % 2 else "dark")
        place.mkdir(parents=True, exist_ok=True)
        grey = np.full((4, 4), 250 * (number % 2) + number % 5, np.uint8)
        image.fromarray(grey).save(place / f"{number}.png")
    for source in ("photos", "own.parquet"):
        if source == "own.parquet":
            columns = {
                "k": ["a", "b"] * 20,
                "one": [float(i % 2) for i in range(40)],
                "two": [0.0] * 40,
            }
            parquet.write_table(pyarrow.table(columns), source)
        out = here / f"bank-{source}"
        target = ["--target", "k"] if source == "own.parquet" else []
        call("train", out, "--data", source, *target, "--model", "mlp(8)", *SHORT)
        assert answer("evaluate", out)["trained_on_this_data"] is True


@pytest.fixture
def networks(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(here / "nowhere"))  # puts sys.path back afterwards
    (here / "users_networks").mkdir()
    (here / "users_networks" / "__init__.py").touch()
    (here / "users_networks" / "small.py").write_text(FACTORY)
    (here / "users_networks" / "broken.py").write_text("1 / 0")
    for name in [key for key in sys.modules if key.startswith("users_networks")]:
        monkeypatch.delitem(sys.modules, name)
    return table(here / "own.csv", ("a", "b", "c"))


def test_a_network_of_ones_own_goes_through_every_verb(networks: Path, tmp_path: Path) -> None:
    own = ["--model", "users_networks.small:tiny"]
    data = ["--data", "own.csv", "--target", "kind"]
    planned = answer("train", "--dry-run", *data, *own)
    assert (planned["recipe"]["model"], planned["modules"]) == ("custom", 3)
    call("train", "bank", *data, *own, *SHORT)
    bank = tmp_path / "bank"
    resumed = call("train", "bank/recipe.yaml", "bank", *own)  # it is finished
    assert "custom model" in resumed.stdout
    a, b = bank / "a.safetensors", bank / "b.safetensors"
    merged, out = tmp_path / "whole.safetensors", tmp_path / "out.safetensors"
    for words in (
        ["compose", bank, "-o", merged, "--operator", "logits"],
        ["evaluate", merged],
        ["inspect", bank],
        ["path", a, b, "--points", 3],
        ["compatibility", bank, "--samples", "own.csv"],
        ["compact", a, "-o", out],
        ["export", a, "-o", out],
        ["report", bank, "-o", tmp_path / "report.html"],
    ):
        assert "--model package.module:factory" in refusal(*words)
        call(*words, *own)
    assert "--model users_networks.small:tiny" in (tmp_path / "report.html").read_text("utf-8")
    from users_networks.small import tiny

    from intarsia.studio.opening import open_paths

    assert len(open_paths([bank], model=tiny).modules) == 3


def test_modules_of_a_published_network_are_read_by_its_name(here: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=12, max_position_embeddings=4, num_labels=3,
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(here / "words")
    network, own = ia.published("hf/./words"), ["--model", "hf/./words"]
    for name in "ab":
        module = ia.Module.of(
            network, rewarded=name, catalogue=("a", "b", "c"), shape=(4,), base=network
        )
        module.save(here / f"{name}.safetensors")
    parts = ["a.safetensors", "b.safetensors"]
    words = ["compose", *parts, "-o", "whole.safetensors", "--operator", "mean"]
    assert "hf/./FOLDER" in refusal(*words, "--model", "words")
    call(*words, *own)
    whole = ia.Composition.load(here / "whole.safetensors", model=network)
    assert str(whole.operator) == "mean"
    call("inspect", "whole.safetensors", *own)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("users_network.small:tiny", "there is no module 'users_network'"),
        ("users_networks.smal:tiny", "there is no module 'users_networks.smal'"),
        ("users_networks.small:tinny", "it has no 'tinny': did you mean 'tiny'"),
        ("users_networks.small:ready", "ready is a Sequential: expected a function"),
        ("users_networks.small:__name__", "is a str"),
        ("users_networks.broken:tiny", "ZeroDivisionError"),
        ("users networks:tiny", "expected package.module:factory"),
    ],
)
def test_a_network_that_cannot_be_had_is_told(networks: Path, word: str, said: str) -> None:
    assert said in refusal("train", "out", "--data", "digits", "--model", word)
    assert said in refusal("inspect", "nowhere.safetensors", "--model", word)


def test_no_recipe_has_code_imported(networks: Path, tmp_path: Path) -> None:
    for model in ("users_networks.broken:tiny", "custom"):
        (tmp_path / "recipe.yaml").write_text(f"data: digits\nmodel: {model}\n")
        said = refusal("train", "recipe.yaml", "out")
        assert "never imported because a file says so" in said
    assert "users_networks" not in sys.modules


def test_numbers_that_no_column_has_are_names() -> None:
    assert read_target("-1") == -1
    assert read_target("'7'") == "7"
    assert read_target("7" * 5000) == "7" * 5000  # int() would refuse it with an error of its own
