"""Profiles: as Hugging Face's hidden states say, in blocks as whole, and nothing that grows."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from intarsia import compose, load_data, train
from intarsia.errors import DataError, ModelError, RecipeError
from intarsia.lens import entropy, generate, open_model, profile, profile_generated
from intarsia.models import build
from small_language_models import less_even

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [[5, 9, 2, 7, 7, 1], [3, 8, 60], [1] * 9]


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def hugging_face(request: pytest.FixtureRequest) -> Any:
    if request.param == "gpt2":
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        config = transformers.GPT2Config(vocab_size=61, n_positions=32, n_embd=16, n_layer=3,
                                         n_head=2, bos_token_id=0, eos_token_id=0)  # fmt: skip
        network = transformers.GPT2LMHeadModel(config)
        return less_even(network)
    return request.getfixturevalue("tiny_llama")


@torch.no_grad()
def by_hidden_states(network: Any, text: list[int], alpha: float = 1.0) -> np.ndarray:
    """T x L; the last of the hidden states is normed already, others are normed here."""
    states = network(torch.tensor([text]), output_hidden_states=True).hidden_states[1:]
    base = getattr(network, "model", None) or network.transformer
    norm = getattr(base, "norm", None) or base.ln_f
    normed = [*(norm(state) for state in states[:-1]), states[-1]]
    return np.stack([entropy(network.lm_head(own)[0], alpha).numpy() for own in normed], 1)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, math.inf])
def test_equals_hidden_states(hugging_face: Any, alpha: float) -> None:
    found = profile(hugging_face, TEXTS, alpha, per_token=True)
    assert found.values.shape == (3, 1, 3)
    assert found.per_token is not None
    for text, own, row in zip(TEXTS, found.per_token, found.mean, strict=True):
        expected = by_hidden_states(hugging_face, text, alpha)
        np.testing.assert_allclose(own, expected, atol=1e-5)
        np.testing.assert_allclose(row, expected.mean(0), atol=1e-5)


@torch.no_grad()
def test_last_layer_is_the_models_own_answer(hugging_face: Any) -> None:
    found = profile(hugging_face, TEXTS, batch=2)
    for place, text in enumerate(TEXTS):
        logits = hugging_face(torch.tensor([text])).logits[0]
        assert found.mean[place, -1] == pytest.approx(float(entropy(logits).mean()), abs=1e-5)
        chances = logits.log_softmax(-1)[range(len(text) - 1), text[1:]]
        assert found.log_probability[place] == pytest.approx(float(chances.mean()), abs=1e-5)
        spread = logits.std(-1, correction=0).mean()
        assert found.spread[place] == pytest.approx(float(spread), abs=1e-5)


@pytest.mark.parametrize("block", [1, 7, 61, 300])
def test_blocks_of_the_vocabulary_are_as_the_whole(hugging_face: Any, block: int) -> None:
    whole, parts = profile(hugging_face, TEXTS), profile(hugging_face, TEXTS, block=block)
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-5)
    np.testing.assert_allclose(parts.log_probability, whole.log_probability, atol=1e-5)
    np.testing.assert_allclose(parts.spread, whole.spread, atol=1e-5)


def test_bfloat16_is_near(hugging_face: Any) -> None:
    rough = profile(hugging_face, TEXTS, precision="bfloat16")
    np.testing.assert_allclose(rough.values, profile(hugging_face, TEXTS).values, atol=0.1)
    assert not np.array_equal(rough.values, profile(hugging_face, TEXTS).values)


def test_texts_of_one_length_cost_a_pass_for_each_batch_and_one_more(hugging_face: Any) -> None:
    """The one more compares the parts' answer with the model's; nothing else is to be tried."""
    passes: list[torch.Size] = []
    handle = hugging_face.register_forward_pre_hook(
        lambda _, args, named: passes.append((args[0] if args else named["input_ids"]).shape),
        with_kwargs=True,
    )
    texts = [[place, place + 1, place + 2] for place in range(1, 8)]
    found = profile(hugging_face, texts, batch=3)
    handle.remove()
    assert passes == [(1, 3), (3, 3), (3, 3), (1, 3)]
    alone = np.stack([profile(hugging_face, [text]).mean[0] for text in texts])
    np.testing.assert_allclose(found.mean, alone, atol=1e-5)


def test_windows_and_positions(hugging_face: Any) -> None:
    found = profile(hugging_face, TEXTS[:1], windows=3, per_token=True)
    assert found.per_token is not None
    by_pairs = found.per_token[0].reshape(3, 2, 3).mean(1)
    np.testing.assert_allclose(found.values[0], by_pairs, atol=1e-6)
    last = profile(hugging_face, TEXTS[:1], positions="last")
    np.testing.assert_allclose(last.mean[0], found.per_token[0][-1], atol=1e-6)
    assert last.tokens.tolist() == [1]


def test_generated_entropies_are_those_at_each_last_position(hugging_face: Any) -> None:
    prompts = [[4, 5], [6], [9, 9]]
    found, texts = profile_generated(hugging_face, prompts, 4, per_token=True, seed=3)
    assert texts == profile_generated(hugging_face, prompts, 4, seed=3, batch=1)[1]
    assert texts != profile_generated(hugging_face, prompts, 4, seed=4)[1]
    assert found.per_token is not None
    for prompt, text, own in zip(prompts, texts, found.per_token, strict=True):
        assert text[: len(prompt)] == prompt
        steps = [by_hidden_states(hugging_face, text[:end])[-1]
                 for end in range(len(prompt), len(text))]  # fmt: skip
        np.testing.assert_allclose(own, steps, atol=1e-5)


def test_cold_samples_are_the_likeliest(hugging_face: Any, llama: Path) -> None:
    for network in (hugging_face, open_model(llama).network):
        (text,) = generate(network, [[4, 5]], 3, temperature=0)
        for end in (2, 3, 4):
            answer = network(torch.tensor([text[:end]]))
            logits = getattr(answer, "logits", answer)
            assert text[end] == int(logits[0, -1].argmax())


class Largest(TorchDispatchMode):
    """The most numbers of any one tensor that an operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for own in result if isinstance(result, tuple | list) else [result]:
            if isinstance(own, torch.Tensor):
                self.numbers = max(self.numbers, own.numel())
        return result


def test_memory_does_not_grow_with_tokens_times_vocabulary(llama: Path) -> None:
    model = open_model(llama)
    vocabulary, weights = 270, 270 * 16
    sizes = []
    for count in (8, 64):
        with Largest() as largest:
            profile(model, [[1, 2, 3, 4, 5, 6, 7, 8]] * count, block=16 * vocabulary, batch=count)
        sizes.append(largest.numbers)
        assert largest.numbers < count * 8 * vocabulary
    assert sizes[0] <= weights
    assert sizes[1] <= 64 * 8 * 24  # a layer's own units: tokens times width


def test_llama_files_have_profiles_and_signs(llama: Path) -> None:
    found = profile(llama / "model.bin", ["the once", "abc"], per_token=True)
    assert found.layers == 3
    grows = found.mean[:, 1:] > found.mean[:, :-1]
    assert (found.signs == np.where(grows, 1, -1)).all()
    assert found.expansion.tolist() == grows.mean(0).tolist()
    told = found.to_json()
    assert told["texts"][0]["entropies"] == [pytest.approx(found.mean[0].tolist())]
    assert told["texts"][1]["signs"] == found.signs[1].tolist()
    assert profile(llama, ["abc"], math.inf).to_json()["alpha"] == "inf"
    assert len(found.plot(["a", "b"]).axes[0].lines) == 2


def test_depths_are_interpolated(llama: Path) -> None:
    found = profile(llama, ["abc"])
    a, b, c = found.mean[0]
    expected = [a, (a + b) / 2, b, (b + c) / 2, c]
    np.testing.assert_allclose(found.interpolated(5).mean[0], expected)


class Picture(nn.Module):
    """Patches with a list of blocks, two norms and a head under names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.first_norm, self.end = nn.LayerNorm(6), nn.LayerNorm(6)
        self.classes = nn.Sequential(nn.Linear(6, 5), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first_norm(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.classes(self.end(x)[:, 0])


@torch.no_grad()
def test_any_network_by_the_names_of_its_parts() -> None:
    torch.manual_seed(0)
    network, x = Picture(), torch.randn(4, 3, 6)
    found = profile(network, x, norm="end", head="classes", positions="first", batch=3)
    first = network.layers[0](network.first_norm(x))
    expected = entropy(network.classes(network.end(first))[:, 0])
    np.testing.assert_allclose(found.mean[:, 0], expected, atol=1e-6)
    assert np.isnan(found.log_probability).all()
    with pytest.raises(ModelError, match="several norms"):
        profile(network, x, head="classes")
    with pytest.raises(ModelError, match="head"):
        profile(network, x, norm="end")
    with pytest.raises(ModelError, match="did you mean 'layers'"):
        profile(network, x, blocks="layer", norm="end", head="classes")


class Recurring(nn.Module):
    """Blocks that run several times, as those of a universal transformer do."""

    def __init__(self, blocks: int, times: int) -> None:
        super().__init__()
        self.embed, self.times = nn.Embedding(61, 16), times
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 61)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if x.is_floating_point() else self.embed(x)
        for _ in range(self.times):
            for block in self.blocks:
                x = block(x)
        return self.head(self.norm(x))


@pytest.mark.parametrize(("blocks", "times"), [(1, 3), (2, 2)])
@pytest.mark.parametrize("inputs", [[[1, 2, 3]], torch.ones(2, 3, 16)], ids=["texts", "samples"])
def test_blocks_that_run_again_are_refused(inputs: Any, blocks: int, times: int) -> None:
    """A pass that stops at the first run of the last block would say nothing of the answer."""
    with pytest.raises(ModelError, match=f"runs its last block {times} times"):
        profile(Recurring(blocks, times), inputs)
    assert profile(Recurring(blocks, 1), inputs).layers == blocks


class Pooling(nn.Module):
    """Patches of which every second is left out between two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[1](self.blocks[0](x)[:, ::2])
        return self.head(self.norm(x).mean(1))


@torch.no_grad()
def test_blocks_of_other_lengths_have_one_row_of_a_sample() -> None:
    torch.manual_seed(0)
    network, x = Pooling(), torch.randn(5, 8, 6)
    with pytest.raises(ModelError, match=r"numbers of positions \(\[8, 4\].*positions='mean'"):
        profile(network, x)
    found = profile(network, x, positions="mean", batch=2)
    first = network.blocks[0](x)
    expected = entropy(network.head(network.norm(first).mean(1)))
    np.testing.assert_allclose(found.mean[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(found.mean[:, 1], entropy(network(x)), atol=1e-6)


def test_blocks_that_give_no_tensor_are_named() -> None:
    class Named(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return {"hidden": super().forward(x)}

    class Network(Pooling):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Named(6, 6)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.blocks[0](x)["hidden"]))

    with pytest.raises(ModelError, match="block 0 gives a dict: expected a tensor"):
        profile(Network(), torch.ones(2, 3, 6))


class Projecting(Recurring):
    """What is between norm and head has no name that could be recognised, as in OPT-350m."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.down, self.head = nn.Linear(16, 8), nn.Linear(8, 61)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x if x.is_floating_point() else self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.down(self.norm(x)))


@pytest.mark.parametrize(
    ("inputs", "positions"),
    [([[1, 2, 3]], "all"), (torch.ones(2, 3, 16), "all"), (torch.ones(2, 3, 16), "mean")],
)
def test_projection_goes_with_the_norm(inputs: Any, positions: Any) -> None:
    network = Projecting()
    with pytest.raises(ModelError, match="a projection, goes with the norm"):
        profile(network, inputs, positions=positions)
    norm = nn.Sequential(network.norm, network.down)
    found = profile(network, inputs, positions=positions, norm=norm)
    x = inputs if isinstance(inputs, torch.Tensor) else network.embed(torch.tensor(inputs))
    rows = norm(network.blocks[1](network.blocks[0](x)))
    rows = rows.mean(1, keepdim=True) if positions == "mean" else rows
    expected = entropy(network.head(rows)).mean(1).detach()
    np.testing.assert_allclose(found.mean[:, -1], expected, atol=1e-6)


@torch.no_grad()
def test_transformers_picture_classifier_needs_no_names() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=8, patch_size=4, num_channels=1, num_labels=5,
    )  # fmt: skip
    network, x = transformers.ViTForImageClassification(config), torch.randn(3, 1, 8, 8)
    found = profile(network, x, positions="first")
    own = network.eval()(x).logits
    np.testing.assert_allclose(found.mean[:, -1], entropy(own), atol=1e-6)


class Hooked(nn.Module):
    """Names as in TransformerLens: hooks behind blocks, ln_final, and unembed, no linear layer."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.mlp = nn.LayerNorm(16), nn.Linear(16, 16)
            self.hook_resid_post = nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.hook_resid_post(x + self.mlp(self.ln1(x)).cumsum(1))

    class Unembed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W_U, self.b_U = (nn.Parameter(torch.randn(*own)) for own in ((16, 61), (61,)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.W_U + self.b_U

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.ln_final = nn.Embedding(61, 16), nn.LayerNorm(16)
        self.blocks, self.unembed = nn.ModuleList(self.Block() for _ in range(3)), self.Unembed()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembed(self.ln_final(x))


@torch.no_grad()
def test_equals_hooks_on_the_residual_stream() -> None:
    torch.manual_seed(0)
    network = Hooked()
    found = profile(network, TEXTS, per_token=True).per_token
    assert found is not None
    for text, own in zip(TEXTS, found, strict=True):
        seen: list[torch.Tensor] = []
        handles = [
            block.get_submodule("hook_resid_post").register_forward_hook(
                lambda _, __, x, seen=seen: seen.append(x[0])
            )
            for block in network.blocks
        ]
        network(torch.tensor([text]))
        for handle in handles:
            handle.remove()
        steps = [entropy(network.unembed(network.ln_final(x))).numpy() for x in seen]
        np.testing.assert_allclose(own, np.stack(steps, 1), atol=1e-5)


def test_pictures_may_be_arrays_of_any_float_type() -> None:
    torch.manual_seed(0)
    network, x = build("vit", (1, 8, 8), 5), torch.randn(3, 1, 8, 8)
    expected = profile(network, x).values
    for given in (x.double(), x.numpy(), x.double().numpy()):
        np.testing.assert_allclose(profile(network, given).values, expected, atol=1e-6)
    with pytest.raises(DataError, match="float numbers"):
        profile(network, torch.zeros(3, 1, 8, 8, dtype=torch.uint8))


class Encoder(nn.Module):
    """Every position sees all others, and there is a head that gives tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(61, 16)
        layers = (nn.TransformerEncoderLayer(16, 2, 24, 0.0, batch_first=True) for _ in range(2))
        self.blocks, self.norm, self.head = (
            nn.ModuleList(layers),
            nn.LayerNorm(16),
            nn.Linear(16, 61),
        )

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def test_texts_that_an_encoder_reads_are_not_padded() -> None:
    torch.manual_seed(0)
    network = Encoder().eval()
    together = profile(network, TEXTS).mean
    alone = np.concatenate([profile(network, [text]).mean for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_what_a_network_has_no_place_for_is_said() -> None:
    network = Encoder()
    network.embedding, network.words = nn.Identity(), network.embedding  # not found by its name
    network.get_submodule("embedding").forward = network.words.forward  # type: ignore[method-assign]
    with pytest.raises(DataError, match="beyond its vocabulary"):
        profile(network, [[1, 61]])
    with pytest.raises(DataError, match="beyond its vocabulary"):
        generate(network, [[61]], tokens=1)


def test_parts_that_are_not_the_models_are_noticed(hugging_face: Any) -> None:
    with pytest.raises(ModelError, match="not what the model answers"):
        profile(hugging_face, TEXTS, norm=nn.Identity())


def test_a_scale_that_is_a_word_is_not_the_models() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MptConfig(
        vocab_size=61, d_model=16, n_layers=3, n_heads=2, logit_scale="inv_sqrt_d_model"
    )
    network = less_even(transformers.MptForCausalLM(config))
    with torch.no_grad():
        logits = network(torch.tensor([TEXTS[0]])).logits[0]
    expected = float(entropy(logits).mean())
    assert profile(network, TEXTS).mean[0, -1] == pytest.approx(expected, abs=1e-5)


class Summing(nn.Module):
    """A language model whose second block joins neighbours to one row."""

    is_causal_lens = True

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 4)
        self.blocks = nn.ModuleList([nn.Identity(), nn.AvgPool2d((2, 1))])
        self.norm, self.head = nn.Identity(), nn.Linear(4, 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        answer: torch.Tensor = self.head(self.norm(x))
        return answer


def test_blocks_that_have_no_row_for_each_token_are_refused() -> None:
    with pytest.raises(ModelError, match=r"block 1 gives \(1, 2, 4\) for \(1, 4\) tokens"):
        profile(Summing(), [[1, 2, 3, 4]])


def test_blocks_with_fewer_positions_than_others_are_refused() -> None:
    """As a network has them that merges patches on the way; the mean has one of each."""
    blocks = [nn.Linear(4, 4), nn.Conv1d(6, 3, 1)]  # 6 positions, and 3
    network = nn.Sequential(*blocks, nn.LayerNorm(4), nn.Linear(4, 5))
    parts: dict[str, Any] = {"blocks": blocks, "norm": network[2], "head": network[3]}
    x = torch.randn(7, 6, 4)
    with pytest.raises(ModelError, match=r"numbers of positions \(\[6, 3\] of a sample\)"):
        profile(network, x, **parts)
    assert profile(network, x, positions="mean", **parts).values.shape == (7, 1, 2)
    assert profile(network, x, positions="last", **parts).values.shape == (7, 1, 2)


def test_class_modules_are_sent_to_the_tuned_lens() -> None:
    data = load_data("digits", classes=["0", "1"])
    bank = train(data, model="mlp(8)", epochs=1, rounds=0, progress=False)
    for model in (bank, bank[0], bank[0].to_module(), compose(bank)):
        with pytest.raises(ModelError, match=r"tuned\(model, data\)"):
            profile(model, data.test.x)


def test_hooks_are_gone_afterwards(hugging_face: Any) -> None:
    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in hugging_face.modules())

    before = hooks()  # transformers has some of its own
    profile(hugging_face, TEXTS)
    with pytest.raises(ModelError):
        profile(hugging_face, TEXTS, norm=nn.Identity())
    assert hooks() == before


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_gguf(network: Any, path: Path) -> None:
    """A Llama as llama.cpp writes it, with a tokenizer of single letters and one pair."""
    gguf = pytest.importorskip("gguf")
    config = network.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    letters = [chr(ord("A") + place) for place in range(config.vocab_size - 1)]
    writer.add_token_list([*letters, "BA"])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(["B A"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    state = network.state_dict()
    tensors = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    for layer in range(config.num_hidden_layers):
        tensors |= {f"blk.{layer}.{short}": f"model.layers.{layer}.{long}"
                    for long, short in GGUF_NAMES.items()}  # fmt: skip
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for short, long in tensors.items():
        values = state[f"{long}.weight"].numpy()
        if count := heads.get(short.rpartition(".")[2]):  # llama.cpp turns pairs of neighbours
            halves = values.reshape(count, 2, -1, values.shape[1])
            values = np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
        writer.add_tensor(f"{short}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_the_network_it_was_written_from(tiny_llama: Any, tmp_path: Path) -> None:
    write_gguf(tiny_llama, tmp_path / "tiny.gguf")
    expected = profile(tiny_llama, TEXTS)
    for found in (
        profile(tmp_path / "tiny.gguf", TEXTS),
        profile(tmp_path, TEXTS, gguf_file="tiny.gguf"),
    ):
        assert found.model == "tiny"
        np.testing.assert_allclose(found.values, expected.values, atol=1e-5)
    opened = open_model(tmp_path / "tiny.gguf")
    assert opened.encode("CAD") == [2, 0, 3]
    assert opened.decode([2, 0, 3]) == "CAD"


def test_a_folder_is_read_without_its_code(hugging_face: Any, tmp_path: Path) -> None:
    hugging_face.save_pretrained(tmp_path)
    found = profile(tmp_path, TEXTS)
    np.testing.assert_allclose(found.values, profile(hugging_face, TEXTS).values, atol=1e-6)
    with pytest.raises(DataError, match="tokenizer"):
        profile(tmp_path, ["text"])


def test_a_folder_without_a_language_head_is_refused(tiny_llama: Any, tmp_path: Path) -> None:
    tiny_llama.model.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no weights for 'lm_head.weight'"):
        profile(tmp_path, TEXTS)


def test_bad_inputs_are_named(hugging_face: Any, llama: Path, tmp_path: Path) -> None:
    for inputs in ([], [[]], [[61]], [[-1]], [[1.5]], [3], np.zeros(3, int), None):
        with pytest.raises(DataError):
            profile(hugging_face, inputs)
    for how in ({"windows": 0}, {"batch": 0}, {"alpha": 0}, {"positions": "some"}, {"block": 0}):
        with pytest.raises(RecipeError):
            profile(hugging_face, TEXTS, **how)
    with pytest.raises(ModelError, match="float32"):
        profile(hugging_face, TEXTS, precision="float8")
    with pytest.raises(DataError, match="too few for 4 windows"):
        profile(hugging_face, TEXTS, windows=4)
    hugging_face.save_pretrained(tmp_path / "bare")  # without the files of its tokenizer
    with pytest.raises(DataError, match=r"bare has none: .*tokenizer\.json"):
        profile(tmp_path / "bare", ["a"])
    with pytest.raises(ModelError, match="no model at"):
        profile(tmp_path / "none.gguf", ["a"])
    with pytest.raises(ModelError, match="did you mean 'smollm2'"):
        profile("smolm2", ["a"])
    (tmp_path / "bad.gguf").write_bytes(b"GGUFnothing")
    with pytest.raises(ModelError, match="bad"):
        profile(tmp_path / "bad.gguf", ["a"])
    with pytest.raises(RecipeError, match="temperature"):
        generate(llama, ["a"], temperature=-1)
    with pytest.raises(RecipeError, match="tokens"):
        generate(llama, ["a"], 0)


@torch.no_grad()
def test_a_small_vision_transformer_has_a_profile() -> None:
    torch.manual_seed(0)
    network = build("vit", (1, 8, 8), 5)
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    seen: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(lambda _, __, own: seen.append(own))
        for block in network.get_submodule("blocks").children()
    ]
    logits = network(x)
    for handle in handles:
        handle.remove()
    norm, head = network.get_submodule("norm"), network.get_submodule("fc")
    expected = torch.stack([entropy(head(norm(own).mean(1))) for own in seen], 1)
    found = profile(network, x, positions="mean", batch=4)
    np.testing.assert_allclose(found.mean, expected, atol=1e-5)
    np.testing.assert_allclose(found.mean[:, -1], entropy(logits), atol=1e-5)
    patches = profile(network, x, per_token=True)
    assert patches.per_token is not None
    np.testing.assert_allclose(
        patches.per_token[0][:, 0], entropy(head(norm(seen[0][0]))), atol=1e-5
    )
    with pytest.raises(RecipeError, match="not texts"):
        profile(network, [[1, 2]], positions="mean")


def test_a_network_in_training_stays_in_it() -> None:
    """Part by part, and also where there is an error; read without dropout."""
    torch.manual_seed(0)
    vit = build("vit", (1, 8, 8), 5)
    frozen = next(part for part in vit.modules() if isinstance(part, nn.LayerNorm))
    vit.train()
    frozen.eval()
    x = torch.randn(2, 1, 8, 8)
    profile(vit, x, positions="mean")
    with pytest.raises(DataError, match="not finite"):
        profile(vit, x * math.nan)
    assert not frozen.training
    assert all(part.training for part in vit.modules() if part is not frozen)


def test_generating_leaves_the_mode_alone(hugging_face: Any) -> None:
    hugging_face.train()
    try:
        generate(hugging_face, [[5]], 2)
        profile_generated(hugging_face, [[5]], 2)
        assert all(part.training for part in hugging_face.modules())
    finally:
        hugging_face.eval()


def test_tables_fit_80_columns(hugging_face: Any) -> None:
    printed = str(profile(hugging_face, [[5, 9, 2, 7]] * 30, windows=2))
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    assert "and 24 more; means over 2 windows" in printed


def test_tokens_are_whole_numbers(hugging_face: Any) -> None:
    with pytest.raises(DataError, match="expected whole numbers"):
        profile(hugging_face, torch.tensor([[1.0, 2.0]]))
