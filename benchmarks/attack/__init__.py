"""Crafted inputs: what they are made of, where they are handed in, and who watches."""
