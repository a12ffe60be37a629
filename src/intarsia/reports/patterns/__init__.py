"""The report of pattern networks."""
