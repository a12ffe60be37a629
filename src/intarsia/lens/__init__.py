"""Lens: how sure a network is, layer by layer."""

from intarsia.lens.tuned_lens import LayerMap, TunedLens, tune
from intarsia.lens.tuned_profiles import LayerProfile, ModuleProfile, TunedProfiles, tuned

__all__ = [
    "LayerMap",
    "LayerProfile",
    "ModuleProfile",
    "TunedLens",
    "TunedProfiles",
    "tune",
    "tuned",
]
