"""Engines: who trains the modules of a bank for an epoch."""
