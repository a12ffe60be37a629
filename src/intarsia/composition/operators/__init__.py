"""Operators: pure functions that join states or logits, one file per idea."""
