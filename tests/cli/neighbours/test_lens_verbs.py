"""lens profile and classify: what they print is what the room gives."""

import csv
from pathlib import Path

import pytest
from command_line import CommandLine

import intarsia as ia
from tiny_llama import write_llama

lens = CommandLine("lens")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("llama"))


def test_profile_of_texts_and_of_what_is_written(llama: Path, tmp_path: Path) -> None:
    lines, picture = tmp_path / "lines.txt", tmp_path / "p.svg"
    lines.write_text("abc\n\nthe once\n")
    answer = lens.answer("profile", llama, "--file", lines, "--alpha", "inf", "--figure", picture)
    expected = ia.lens.profile(llama, ["abc", "the once"], float("inf"))
    assert answer == expected.to_json()
    assert picture.read_text().startswith("<")
    written = lens.answer("profile", llama, "abc", "--generate", 5, "--seed", 1)
    assert len(written["written"]) == 1
    assert written["texts"][0]["positions"] == 5
    assert "layer" in lens.call("profile", llama, "abc").stdout
    every = lens.answer("profile", llama, "abc the once", "--stride", 3, "--device", "cpu")
    assert every == ia.lens.profile(llama, ["abc the once"], stride=3).to_json()


def test_classify_reads_a_table(llama: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "group"])
        for place in range(12):
            writer.writerow([f"abc{place}" * 2, "a", place])
            writer.writerow([f"the once{place}", "b", place])
    how = ("--folds", 3, "--neighbours", 5, "--tokens", 6)
    answer = lens.answer("classify", llama, table, *how)
    assert answer["groups"] == 12
    assert {"all layers", "log-probability", "permuted labels"} <= set(answer["scores"])
    picture = tmp_path / "layers.svg"
    shown = lens.call("classify", llama, table, *how, "--figure", picture, "--device", "cpu")
    assert "all layers" in shown.stdout
    assert picture.read_text().startswith("<")


def test_texts_hold_whatever_is_no_line_end(llama: Path, tmp_path: Path) -> None:
    """Form feeds and separators of Unicode are within texts, and a mark of bytes before them."""
    lines, table = tmp_path / "lines.txt", tmp_path / "t.csv"
    lines.write_text("\ufeffabc\x0cthe\nonce\u2028the\r\n", "utf-8")
    assert len(lens.answer("profile", llama, "--file", lines)["texts"]) == 2
    rows = [f'abc\x0c\u2028{n},a\n"the\nonce {n}",b\n' for n in range(6)]
    table.write_text("\ufefftext,label\n" + "".join(rows), "utf-8")
    answer = lens.answer("classify", llama, table, "--folds", 2, "--neighbours", 3)
    assert (answer["texts"], answer["classes"]) == (12, ["a", "b"])


def test_what_cannot_be_read_is_named(llama: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("words,label\na,b\n")
    assert "no column 'text'" in lens.refusal("classify", llama, bad)
    assert "there is no text" in lens.refusal("profile", llama)
    assert "alpha" in lens.refusal("profile", llama, "abc", "--alpha", "much")
    assert "no model" in lens.refusal("profile", tmp_path / "none", "abc")
    assert "positions" in lens.refusal(
        "profile", llama, "a", "--positions", "last", "--generate", 3
    )
    assert "stride" in lens.refusal("profile", llama, "a", "--stride", 2, "--generate", 3)
    assert "device" in lens.refusal("profile", llama, "a", "--device", "abacus")
