"""MLPs on the CPU: gradients written out by hand, one module per core."""
