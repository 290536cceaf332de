"""Chat templates that mean harm: each would take hours, gigabytes or the stack, if it were let."""

from __future__ import annotations

_MANY = "{% for i in range(90000) %}"
_END = "{% endfor %}"
_DEEP = "{% set ns = namespace(a=1) %}" + _MANY + "{% set ns.a = (ns.a,) %}" + _END
_TEXT = "{% set s = 'a' * 8000000 %}"
_LIST = "{% set s = [1] * 1500000 %}"
_TEXTS = "(['x' * 1000000] * 100000)"

LARGE = {
    "fill of a batch": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slices": "{{ [1] | slice(10 ** 8, 'x') | list }}",
    "batches": "{{ ([0] * 1500000) | batch(1) | list }}",
    "indent of JSON": "{{ {'a': [1]} | tojson(indent=10 ** 9) }}",
    "word as indent of JSON": "{{ [[1] * 10000] | tojson(indent='x' * 10000) }}",
    "separators of JSON": "{{ ([1] * 10000) | tojson(separators=('x' * 10000, ':')) }}",
    "places of a number": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "places before the point": "{{ 15 | round(-(10 ** 9)) }}",
    "layout of a time": "{{ strftime_now('%999999999d' * 100000) }}",
    "table of characters": "{{ ('a' * 1000000).translate({97: 'x' * 100000}) }}",
    "bytes of a text": "{{ 'a'.encode().ljust(10 ** 10) }}",
    "bytes of a number": "{{ (1).to_bytes(10 ** 9, 'big') }}",
    "tabs": "{{ ('\t' * 2000000).expandtabs(1000) }}",
    "indented lines": "{{ ('\n' * 2000000) | indent(1000, true, true) }}",
    "replacement by name": "{{ ('a' * 4000) | replace(new='x' * 1000000, old='a') }}",
    "fields of printf": "{{ ('%(a)s' * 100000) % {'a': 'x' * 1000000} }}",
    "fields of format": "{{ ('{0}' * 100000).format('x' * 1000000) }}",
    "fields of the filter": "{{ ('%(a)s' * 100000) | format(a='x' * 1000000) }}",
    "fields of a mapping": "{{ ('{a}' * 100000).format_map({'a': 'x' * 1000000}) }}",
    "width within a width": "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "joined texts": "{{ ''.join(" + _TEXTS + ") }}",
    "joined one by one": "{{ ''.join(" + _TEXTS + " | select) }}",
    "namespace shown": "{% set ns = namespace(a=" + _TEXTS + ") %}{{ ns }}",
    "values shown": "{{ {'a': " + _TEXTS + "}.values() }}",
    "items shown": "{{ {'a': " + _TEXTS + "}.items() ~ '' }}",
    "slices kept": "{% set ns = namespace(k=[]) %}" + _TEXT + _MANY
    + "{% set ns.k = ns.k + [s[1:]] %}" + _END,
    "texts kept": "{% set ns = namespace(k=[]) %}{% for i in range(99) %}"
    "{% set ns.k = ns.k + ['\U0001f642' * 9000000] %}{% endfor %}",
    "literals": "{% for i in range(99999) %}" + "A" * 40000 + "{% endfor %}",
    "literals in a block": "{% set x %}" + _MANY + "A" * 4000 + _END + "{% endset %}",
}  # fmt: skip
"""They are refused before anything is made."""

LONG = {
    "slices of a text": _TEXT + _MANY + "{% set x = s[1:] %}" + _END,
    "slices of a list": _LIST + _MANY + "{% set x = s[1:] %}" + _END,
    "counts in a text": _TEXT + _MANY + "{% set x = s.count('b') %}" + _END,
    "tests of a text": _TEXT + _MANY + "{% set x = s.isalpha() %}" + _END,
    "splits into one": _TEXT + _MANY + "{% set x = s.split('b') %}" + _END,
    "counts in a list": _LIST + _MANY + "{% set x = s.count(2) %}" + _END,
    "comparisons": _TEXT + _MANY + "{% if 1 == 1 == s %}{% endif %}" + _END,
    "selections": _LIST + _MANY + "{% set x = s | select('none') | list %}" + _END,
    "sums of numbers": _MANY + "{{ range(99999) | sum }}" + _END,
    "largest numbers": _MANY + "{{ range(99999) | max }}" + _END,
    "looks into a range": _MANY + "{{ 'x' in range(99999) }}" + _END,
    "looks into what is selected": _MANY + "{{ 'x' in (range(99999) | select) }}" + _END,
    "sums of lists": "{{ ([[''] * 1000] * 3000) | sum(start=[]) }}",
    "loops within themselves": "{% for x in [0] recursive %}{% if loop.depth < 4 %}"
    "{{ loop(range(99999)) }}{% endif %}{% endfor %}",
    "loops within loops": "{% for a in range(9999) %}" * 12 + "{% endfor %}" * 12,
    "arguments": "{% macro f() %}{% endmacro %}" + _MANY + "{{ f(*range(99999)) }}" + _END,
    "mappings": "{% set s = [['a', 1]] * 300000 %}" + _MANY + "{% set x = dict(s) %}" + _END,
    "namespaces": "{% set s = [['a', 1]] * 300000 %}" + _MANY + "{% set x = namespace(s) %}" + _END,
    "tags in a text": _MANY + "{% set x = ('<!---->' * 250000) | striptags %}" + _END,
    "titles": _MANY + "{% set x = ('a-' * 900000) | title %}" + _END,
    "characters": _MANY + "{% set x = ('\U0001f642' * 900000) | list %}" + _END,
    "macros within macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "callers within callers": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    "{% macro g(n) %}{% if n %}{% call f() %}{{ g(n - 1) }}{% endcall %}{% endif %}{% endmacro %}"
    "{{ g(30) }}",
    "a filter after the other": "{{ range(99999) | map('string') | map('upper') | map('lower') | "
    "list }}",
}  # fmt: skip
"""They are stopped when they have done so much."""

DEEP = {
    "key": _DEEP + "{{ {ns.a: 1} }}",
    "key looked up": _DEEP + "{{ {}[ns.a] }}",
    "key asked for": _DEEP + "{{ {}.get(ns.a) }}",
    "key of a pair": _DEEP + "{{ dict([(ns.a, 1)]) }}",
    "unique": _DEEP + "{{ [ns.a] | unique | list }}",
    "groups": _DEEP + "{{ [{'x': ns.a}] | groupby('x') }}",
}
"""To hash what lies 90 000 tuples deep overflows the stack of the process."""
