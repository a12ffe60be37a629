"""The study of the lens: what entropy through depth tells apart, arm by arm."""

from intarsia.studies.lens import lens_study  # noqa: F401  # registers it
