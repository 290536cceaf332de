from __future__ import annotations

from statistics import median

from tests.architecture.source_tree import PACKAGES, Source, functions, sources

FILE_LINES = 400
FUNCTION_LINES = 60
WIDGET_LINES = 120
COLUMNS = 100


def _lines_of_functions(source: Source) -> dict[str, int]:
    """Lines of each function, by file and first line."""
    return {
        f"{source.name}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for node in functions(source)
    }


def test_a_file_stays_within_its_lines() -> None:
    too_long = {
        s.name: s.num_lines for s in sources(*PACKAGES, "tests") if s.num_lines > FILE_LINES
    }

    assert too_long == {}


def test_a_view_of_a_notebook_stays_within_its_lines() -> None:
    views = [s for s in sources("dashinfer_lab") if s.name.startswith("dashinfer_lab/widgets/")]

    assert len(views) > 10
    assert {s.name: s.num_lines for s in views if s.num_lines > WIDGET_LINES} == {}


def test_a_function_stays_within_its_lines() -> None:
    lengths = [_lines_of_functions(source) for source in sources(*PACKAGES, "tests")]

    too_long = {
        name: lines for each in lengths for name, lines in each.items() if lines > FUNCTION_LINES
    }

    assert too_long == {}


def test_a_line_stays_within_its_columns() -> None:
    too_wide = [
        f"{source.name}:{number}"
        for source in sources(*PACKAGES, "tests")
        for number, line in enumerate(source.text.splitlines(), start=1)
        if len(line) > COLUMNS
    ]

    assert too_wide == []


def test_a_typical_file_is_short() -> None:
    lines = sorted(source.num_lines for source in sources(*PACKAGES))

    assert median(lines) <= 120
    assert lines[int(0.9 * len(lines))] <= 300


def test_a_typical_function_is_short() -> None:
    lengths = [_lines_of_functions(source) for source in sources(*PACKAGES)]
    lines = sorted(length for each in lengths for length in each.values())

    assert lines[int(0.9 * len(lines))] <= 30


def test_a_module_says_what_it_is_for_on_line_one() -> None:
    silent = [source.name for source in sources(*PACKAGES) if not source.text.startswith('"""')]

    assert silent == []
