"""The verbs of `intarsia study`."""
