"""Speed against named baselines, and experiments beyond the studies; each file is a script."""
