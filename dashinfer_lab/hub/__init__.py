"""Find a model's files and read them as a checkpoint; knows nothing of graphs or kernels."""
