"""Mutants of the package's source, and whether the tests of a room notice them."""
