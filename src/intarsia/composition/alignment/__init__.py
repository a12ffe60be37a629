"""Alignment: which unit of one network plays the part of which unit of another."""
