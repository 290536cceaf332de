"""Buffers, threads and programs: what runs compiled kernels."""
