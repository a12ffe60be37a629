"""Lens: entropy through depth, as a network's own head or a tuned one reads each of its layers."""

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
from intarsia.lens.tuned_lens import LayerMap, TunedLens, tune
from intarsia.lens.tuned_profiles import LayerProfile, ModuleProfile, TunedProfiles, tuned

__all__ = [
    "Classification",
    "LanguageModel",
    "LayerMap",
    "LayerProfile",
    "LensParts",
    "LlamaNetwork",
    "LlamaShape",
    "LlamaTokenizer",
    "ModuleProfile",
    "Profile",
    "TunedLens",
    "TunedProfiles",
    "classify",
    "entropy",
    "generate",
    "open_model",
    "profile",
    "profile_generated",
    "read_llama",
    "read_llama_tokenizer",
    "tune",
    "tuned",
]
