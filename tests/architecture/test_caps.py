from __future__ import annotations

from statistics import median

import pytest

from tests.architecture.source_tree import PACKAGES, Source, functions, sources

FILE_LINES = 400
FUNCTION_LINES = 60
COLUMNS = 100

everything = pytest.mark.parametrize("source", sources(*PACKAGES, "tests"), ids=lambda s: s.name)


@everything
def test_a_file_stays_within_its_lines(source: Source) -> None:
    assert source.num_lines <= FILE_LINES


@everything
def test_a_function_stays_within_its_lines(source: Source) -> None:
    lengths = {f.name: (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions(source)}

    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


@everything
def test_a_line_stays_within_its_columns(source: Source) -> None:
    too_wide = [n for n, line in enumerate(source.text.splitlines(), 1) if len(line) > COLUMNS]

    assert too_wide == []


def test_a_typical_file_is_short() -> None:
    lines = sorted(s.num_lines for s in sources(*PACKAGES) if s.num_lines > 10)

    assert median(lines) <= 120
    assert lines[int(0.9 * len(lines))] <= 300


def test_a_typical_function_is_short() -> None:
    lines = sorted(
        (f.end_lineno or f.lineno) - f.lineno + 1
        for source in sources(*PACKAGES)
        for f in functions(source)
    )

    assert lines[int(0.9 * len(lines))] <= 30


@pytest.mark.parametrize("source", sources(*PACKAGES), ids=lambda s: s.name)
def test_a_module_says_what_it_is_for_on_line_one(source: Source) -> None:
    assert source.text.startswith('"""')
