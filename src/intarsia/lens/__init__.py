"""Lens: entropy through depth, as a network's own head reads each of its layers."""

from intarsia.lens.classification import Classification, classify
from intarsia.lens.entropies import entropy
from intarsia.lens.language_models import LanguageModel, generate, open_model
from intarsia.lens.lens_parts import LensParts
from intarsia.lens.llama_files import (
    LlamaNetwork,
    LlamaShape,
    LlamaTokenizer,
    read_llama,
    read_llama_tokenizer,
)
from intarsia.lens.profiles import Profile, profile, profile_generated

__all__ = [
    "Classification",
    "LanguageModel",
    "LensParts",
    "LlamaNetwork",
    "LlamaShape",
    "LlamaTokenizer",
    "Profile",
    "classify",
    "entropy",
    "generate",
    "open_model",
    "profile",
    "profile_generated",
    "read_llama",
    "read_llama_tokenizer",
]
