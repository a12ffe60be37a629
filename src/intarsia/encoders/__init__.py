"""Encoders: pretrained networks that turn raw inputs into the features that modules read."""

from intarsia.encoders import hugging_face, minilm, timm_models  # noqa: F401 (they register themselves)
from intarsia.encoders.encoder import ENCODERS, Encoder, PictureEncoder
from intarsia.encoders.feature_cache import cached_features
from intarsia.encoders.pretrained import pretrained_state

__all__ = ["ENCODERS", "Encoder", "PictureEncoder", "cached_features", "pretrained_state"]
