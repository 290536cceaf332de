"""Speed of a loaded model: against the machine's roof, in others' tables, against a baseline."""

from dashinfer_lab.benchmark.baseline import Baseline, Figure, Regression, keep, kept
from dashinfer_lab.benchmark.speed import BenchmarkPlan, BenchmarkReport, measure
from dashinfer_lab.benchmark.tables import TABLES, BenchmarkTable, TableReport, measure_tables

__all__ = [
    "TABLES",
    "Baseline",
    "BenchmarkPlan",
    "BenchmarkReport",
    "BenchmarkTable",
    "Figure",
    "Regression",
    "TableReport",
    "keep",
    "kept",
    "measure",
    "measure_tables",
]
