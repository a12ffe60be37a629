"""Merges too large for memory: tensors are read from files, joined and written one by one."""
