"""The report of modules: a bank, a composition, or single ones."""
