"""Bases: pretrained weights that modules are changes of, and changes of low rank."""
