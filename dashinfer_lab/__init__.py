"""Run large language models on CPUs, from a notebook."""

__version__ = "0.1.0"
