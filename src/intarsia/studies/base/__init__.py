"""Fine-tuned experts of one pretrained base, joined: what their loss changes."""

from intarsia.studies.base import fine_tuned  # noqa: F401 (it registers itself)
