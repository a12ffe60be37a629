"""Operators on logits: every part keeps its own network."""
