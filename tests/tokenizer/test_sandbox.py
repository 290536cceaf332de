from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from dashinfer_lab.errors import RequestError, TokenizerError
from dashinfer_lab.tokenizer import budget
from dashinfer_lab.tokenizer.budget import Budget, BudgetExceededError
from dashinfer_lab.tokenizer.chat import ChatTemplate
from tests.tokenizer.attacks import DEEP, LARGE

MESSAGES = [{"role": "user", "content": "<b>\u4f60 '</b>"}]
DOUBLE = (
    "{% set ns = namespace(a='x', b='x') %}{% for i in range(99) %}"
    "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}"
)
GROW = (
    "{{% set ns = namespace(a={start}) %}}{{% for i in range(99) %}}"
    "{{% set ns.a = {grown} %}}{{% endfor %}}"
)


def render(source: str) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"}, now=lambda: datetime(2024, 2, 29))
    return template.render(MESSAGES)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "<b>\u4f60 \'</b>"}]'),
        ("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  2\n ]\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "29 Feb 2024"),
        (
            "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
            "user",
        ),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        (
            "{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
            "{% endfor %}{{ ns.n }}",
            "1",
        ),
        ("{{ bos_token ~ messages[0].role | upper ~ (1 + 1) }}", "<s>USER2"),
        ("{{ messages[-1:] | length }}{{ messages | map(attribute='role') | join(',') }}", "1user"),
        ("{{ 'a,b'.split(',')[1].strip() }}{{ 'ab'.startswith('a') }}", "bTrue"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('y') }}", "[y]"),
        ("{{ '%s-%02d' % ('a', 3) }}{{ '{}'.format(4) }}{{ '%d' | format(5) }}", "a-0345"),
        ("{{ tools is none }}{{ missing is defined }}{{ messages[0].name }}", "TrueFalse"),
        ("{% for k, v in {'a': {'b': 2}} | items %}{{ k }}{{ v.b }}{% endfor %}", "a2"),
        ("{{ 'x' * 3 }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ 'a' in 'cab' }}", "xxx10243True"),
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{{ messages[0].content }}", "<b>\u4f60 '</b>"),
    ],
)
def test_what_templates_use_works(source: str, expected: str) -> None:
    assert render(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ joiner.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ dict.__subclasses__() }}",
        "{{ (messages | attr('__class__')).__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ missing.attribute }}",
        "{{ 1 // 0 }}",
        "{% for %}",
        "{{ 'x' | random }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    ],
)
def test_what_reaches_out_or_fails_is_refused(source: str) -> None:
    with pytest.raises(TokenizerError, match="chat template"):
        render(source)
    assert MESSAGES == [{"role": "user", "content": "<b>\u4f60 '</b>"}]


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10 ** 9 }}",
        "{{ [1] * 10 ** 9 }}",
        "{{ 10 ** (10 ** 9) }}",
        "{{ range(10 ** 9) | list }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'xxxxxxxxxxxxxxxx' * 99999 }}{% endfor %}",
        GROW.format(start="'x'", grown="ns.a ~ ns.a"),
        GROW.format(start="'x'", grown="ns.a + ns.a"),
        GROW.format(start="[1]", grown="ns.a + ns.a"),
        GROW.format(start="3", grown="ns.a * ns.a"),
        "{{ 'x'.ljust(10 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 9, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 9) }}",
        "{{ 'x' | indent(10 ** 9, true) }}",
        "{% set s = 'x' * 99999 %}{{ s.replace('x', s) }}",
        "{% set s = 'x' * 99999 %}{{ s | replace('x', s) }}",
        "{% set s = 'x' * 99999 %}{{ s.join(s) }}",
        "{% set s = 'x' * 99999 %}{{ s | join(s) }}",
    ],
)
def test_what_would_fill_the_memory_or_never_end_is_stopped(source: str) -> None:
    with pytest.raises(TokenizerError, match="the template |Range too big"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        DOUBLE + "{{ ns.a }}",
        DOUBLE + "{{ ns.a | tojson }}",
        DOUBLE + "{{ ns.a ~ '' }}",
        DOUBLE + "{{ '%s' % (ns.a,) }}",
        DOUBLE + "{{ '{}'.format(ns.a) }}",
        DOUBLE + "{{ ns.a == ns.b }}",
        DOUBLE + "{{ {ns.a: 1} }}",
        DOUBLE + "{{ ns.a is eq ns.b }}",
        DOUBLE + "{{ [ns.a, ns.b] | sort }}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    ],
)
def test_what_doubles_at_every_step_is_stopped(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "_WORK_LIMIT", 1 << 20)  # seconds become hundredths

    with pytest.raises(TokenizerError, match="more work than is allowed"):
        render(source)


def test_a_format_shows_nothing_of_the_objects_behind_it() -> None:
    assert render("[{{ '{0.__class__}'.format(messages) }}]") == "[]"


def test_a_long_chat_is_within_the_budget() -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 1000
    source = (
        "{% for m in messages %}{% if messages | length > 1 and m.content is string %}"
        "{{ m.role ~ m['content'] | trim + '\\n' }}{% endif %}{% endfor %}"
    )

    assert len(ChatTemplate(source, {}).render(messages)) == 1000 * (4 + 999 + 1)


@pytest.mark.parametrize("name", LARGE)
def test_what_would_be_too_large_is_refused_before_it_is_made(name: str) -> None:
    with pytest.raises(TokenizerError, match="the template |is unsafe"):
        render(LARGE[name])


ALL_IN_LITTLE = """\
import resource, sys
from dashinfer_lab.errors import TokenizerError
from dashinfer_lab.tokenizer.chat import ChatTemplate
from tests.tokenizer import attacks

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

ChatTemplate("{{ messages | tojson }}", {}).render([{"role": "user", "content": "hi"}])
before = peak()
for source in getattr(attacks, sys.argv[1]).values():
    try:
        ChatTemplate(source, {}).render([{"role": "user", "content": "hi"}])
        print("rendered:", source[:200])
    except TokenizerError:
        pass
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("attacks", ["LARGE", "LONG", "DEEP"])
def test_every_attack_ends_with_our_error_in_little_memory(attacks: str) -> None:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-c", ALL_IN_LITTLE, attacks],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) < 300 << 20  # some texts of 16 M characters, of 1 to 4 bytes


@pytest.mark.parametrize("name", DEEP)
def test_what_is_nested_too_deep_to_be_hashed_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DEEP[name].replace("90000", "150")  # deeper than is allowed, not than the stack

    with pytest.raises(TokenizerError, match="nests lists"):
        render(source)


def test_no_rendering_takes_longer_than_its_time() -> None:
    seconds = iter([100.0, 109.0, 111.0])
    counted = Budget(clock=lambda: next(seconds))
    counted.spend(1)

    with pytest.raises(BudgetExceededError, match="longer than 10 s"):
        counted.spend(1)


def test_a_refusal_is_cut_to_a_readable_length() -> None:
    with pytest.raises(RequestError) as refused:
        render("{{ raise_exception('x' * 100000) }}")
    with pytest.raises(TokenizerError) as failed:
        render("{{ {}['x' * 100000].y }}")

    assert len(str(refused.value)) < 3000
    assert len(str(failed.value)) < 3000


def test_fields_of_a_text_are_filled_within_reason() -> None:
    source = "{{ '**{}** {}: %d'.format('a', 'b') }}{{ '100 %% of %s, %5.1f' % ('c' * 40, 2.5) }}"

    assert render(source) == "**a** b: %d100 % of " + "c" * 40 + ",   2.5"
