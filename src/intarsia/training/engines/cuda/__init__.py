"""Banks on CUDA: stacked modules, Triton kernels, graphs of steps."""
