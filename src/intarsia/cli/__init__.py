"""The verbs of the command line, as functions: parse, call, print."""
