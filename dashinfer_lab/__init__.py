"""Run large language models on CPUs, from a notebook."""
