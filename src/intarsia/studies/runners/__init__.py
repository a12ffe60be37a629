"""Runners: who does the work of a study, in one process, several, or on a cluster."""
