"""What a run of training is asked for: the recipe, what fills it in, and what its settings name."""
