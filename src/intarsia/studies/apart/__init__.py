"""Modules that never met: what they lose by not seeing each other's classes."""

from intarsia.studies.apart import visibility_study

__all__ = ["visibility_study"]
