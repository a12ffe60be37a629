"""The study of the flow: arms of pair networks, and what carries cumulants through layers."""

from intarsia.studies.flow import flow_study  # noqa: F401  # registers it
