"""Kernels for CPUs, written in Python and compiled through LLVM at run time."""
