"""Distributed: the chunks of a bank, trained by several workers of one machine or of a cluster.

This process alone has the run's folder. Workers get the plan once, then chunk after chunk; they
send back epochs, checkpoints and the modules of rounds, and keep nothing. What a lost worker had
in hand goes on from its last checkpoint in another.
"""
