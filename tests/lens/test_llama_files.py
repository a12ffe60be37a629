"""llama2.c files: against transformers' Llama, sizes before allocation, tokens there and back."""

import dataclasses
import random
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from intarsia.errors import DataError, FileError, LimitError
from intarsia.lens import open_model, read_llama, read_llama_tokenizer
from intarsia.lens.llama_files import LlamaTokenizer
from intarsia.limits import limited
from tiny_llama import SHAPE, write_llama

pytestmark = pytest.mark.usefixtures("one_thread")


def same_in_transformers(network: Any) -> Any:
    """transformers' Llama with the same weights; it pairs the halves of a head, not neighbours."""
    transformers = pytest.importorskip("transformers")
    s = network.shape
    config = transformers.LlamaConfig(
        vocab_size=s.vocabulary, hidden_size=s.width, intermediate_size=s.hidden,
        num_hidden_layers=s.layers, num_attention_heads=s.heads, num_key_value_heads=s.kv_heads,
        rms_norm_eps=1e-5, max_position_embeddings=s.context, tie_word_embeddings=False,
    )  # fmt: skip
    other = transformers.LlamaForCausalLM(config).eval()

    def halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
        return weight.reshape(heads, -1, 2, s.width).transpose(1, 2).reshape(-1, s.width)

    state = {
        "model.embed_tokens.weight": network.embedding.weight,
        "model.norm.weight": network.norm.weight,
        "lm_head.weight": network.head.weight,
    }
    for place, block in enumerate(network.blocks):
        at = f"model.layers.{place}"
        state |= {
            f"{at}.input_layernorm.weight": block.attention_norm.weight,
            f"{at}.post_attention_layernorm.weight": block.feed_norm.weight,
            f"{at}.self_attn.q_proj.weight": halves(block.query.weight, s.heads),
            f"{at}.self_attn.k_proj.weight": halves(block.key.weight, s.kv_heads),
            f"{at}.self_attn.v_proj.weight": block.value.weight,
            f"{at}.self_attn.o_proj.weight": block.out.weight,
            f"{at}.mlp.gate_proj.weight": block.gate.weight,
            f"{at}.mlp.up_proj.weight": block.up.weight,
            f"{at}.mlp.down_proj.weight": block.down.weight,
        }
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_the_network_is_transformers_llama(tmp_path: Path, tied: bool) -> None:
    folder = write_llama(tmp_path, dataclasses.replace(SHAPE, tied=tied))
    network = read_llama(folder / "model.bin")
    tokens = torch.randint(0, SHAPE.vocabulary, (2, 20), generator=torch.Generator().manual_seed(1))
    expected = same_in_transformers(network)(tokens).logits
    torch.testing.assert_close(network(tokens), expected, atol=1e-4, rtol=1e-4)


def test_a_size_that_does_not_fit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<7i", 2**19, 2**19, 1000, 1, 1, 2**19, 64) + b"x" * 100)
    with pytest.raises(FileError, match="header asks for"):
        read_llama(path)
    for header in ((-1,) * 7, (16, 24, 3, 5, 2, 270, 64), (16, 24, 2**30, 4, 2, 270, 64)):
        path.write_bytes(struct.pack("<7i", *header))
        with pytest.raises(FileError, match="not a llama2"):
            read_llama(path)
    path.write_bytes(b"abc")
    with pytest.raises(FileError, match="3 bytes"):
        read_llama(path)
    path.write_bytes(struct.pack("<7i", 0x616B3432, *(1,) * 6))
    with pytest.raises(FileError, match="version"):
        read_llama(path)
    with pytest.raises(FileError, match="is not a file"):
        read_llama(tmp_path)


def test_a_model_counts_against_the_limits(llama: Path) -> None:
    with limited(memory=1000, per_byte=1), pytest.raises(LimitError, match="memory"):
        read_llama(llama / "model.bin")


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path) / "model.bin"
    content = bytearray(path.read_bytes())
    content[28:32] = struct.pack("<f", float("nan"))
    path.write_bytes(content)
    with pytest.raises(FileError, match="finite"):
        read_llama(path)


def test_text_becomes_tokens_and_text_again(llama: Path) -> None:
    tokenizer = read_llama_tokenizer(llama / "tok.bin")
    tokens = tokenizer.encode("the once é")
    assert tokens[0] == 1
    assert tokenizer.pieces[tokens[1]] in (b" ", b" the") or tokens[1] == 3 + 32
    assert tokenizer.decode(tokens) == "the once é"
    assert tokenizer.encode("") == [1]
    with pytest.raises(DataError, match="expected a string"):
        tokenizer.encode(3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="token 999"):
        tokenizer.decode([999])


def pairs_tokenizer(seed: int) -> LlamaTokenizer:
    """Single bytes, and pieces of a, b and c with few scores, so that many are equal."""
    draw = random.Random(seed)
    pieces = [b"<unk>", b"<s>", b"</s>", *(bytes([n]) for n in range(256))]
    joined = {"".join(draw.choices(" abc", k=draw.randint(2, 5))).encode() for _ in range(40)}
    pieces += sorted(joined)
    return LlamaTokenizer(pieces, [float(draw.randint(0, 4)) for _ in pieces])


def joined_one_by_one(tokenizer: LlamaTokenizer, text: str) -> list[int]:
    """All pairs are looked at before each is joined."""
    places = {piece: n for n, piece in reversed(list(enumerate(tokenizer.pieces)))}
    tokens = [places[byte.encode()] for byte in f" {text}"]
    while True:
        found = [
            (tokenizer.scores[joined], -n, joined)
            for n in range(len(tokens) - 1)
            if (joined := places.get(b"".join(tokenizer.pieces[t] for t in tokens[n : n + 2])))
        ]
        if not found:
            return tokens
        _, place, joined = max(found)
        tokens[-place : 2 - place] = [joined]


@pytest.mark.parametrize("seed", range(20))
def test_the_best_pair_is_joined_first(seed: int) -> None:
    tokenizer, draw = pairs_tokenizer(seed), random.Random(seed)
    for length in (0, 1, 2, 7, 40, 120):
        text = "".join(draw.choices("abc ", k=length))
        expected = joined_one_by_one(tokenizer, text) if text else []
        assert tokenizer.encode(text, begin=False) == expected


def test_the_work_for_a_text_grows_with_its_length() -> None:
    """And not with the square: a pair is looked up when one of its tokens is new."""
    looked_up = 0

    class Counted(dict[bytes, int]):
        def get(self, *key: Any) -> Any:
            nonlocal looked_up
            looked_up += 1
            return super().get(*key)

    tokenizer, text = pairs_tokenizer(0), "abcab " * 100
    tokenizer._place = Counted(tokenizer._place)
    tokenizer.encode(text)
    assert looked_up < 4 * len(text)


def test_a_damaged_tokenizer_is_refused(llama: Path, tmp_path: Path) -> None:
    raw, path = (llama / "tok.bin").read_bytes(), tmp_path / "tok.bin"
    huge = raw[:4] + struct.pack("<fi", 0.0, 2**30)
    for content in (raw[:-1], raw[:-9], raw[:100], huge, b""):
        path.write_bytes(content)
        with pytest.raises(FileError):
            read_llama_tokenizer(path)


def test_contexts_end(llama: Path) -> None:
    network = open_model(llama).network
    with pytest.raises(DataError, match="reads up to 64"):
        network(torch.zeros(1, 65, dtype=torch.long))
