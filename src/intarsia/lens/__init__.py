"""Lens: entropy through depth, as a network's own head or a tuned one reads each of its layers."""

from intarsia.lens.classification import Classification, classify
from intarsia.lens.entropies import entropy
from intarsia.lens.language_models import (
    LanguageModel,
    answer_chances,
    generate,
    open_model,
    packaged_model,
)
from intarsia.lens.lens_parts import LensParts
from intarsia.lens.llama_files import (
    LlamaNetwork,
    LlamaShape,
    LlamaTokenizer,
    read_llama,
    read_llama_tokenizer,
)
from intarsia.lens.profiles import Profile, profile
from intarsia.lens.tuned_lens import LayerMap, TunedLens, tune
from intarsia.lens.tuned_profiles import LayerProfile, ModuleProfile, TunedProfiles, tuned
from intarsia.lens.written import Written, profile_generated, profiles_written

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
    "Written",
    "answer_chances",
    "classify",
    "entropy",
    "generate",
    "open_model",
    "packaged_model",
    "profile",
    "profile_generated",
    "profiles_written",
    "read_llama",
    "read_llama_tokenizer",
    "tune",
    "tuned",
]
