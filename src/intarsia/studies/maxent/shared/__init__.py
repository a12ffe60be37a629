"""What the studies of the maximum-entropy paper share: its numbers, merges, baselines."""
