"""Custom networks: their wiring, read off a trace of the forward pass and tried out."""
