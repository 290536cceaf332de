from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dashinfer_lab.errors import EngineError
from dashinfer_lab.kvcache import PagePool, PageTable, PrefixCache, PrefixChain, PrefixKey
from dashinfer_lab.kvcache import prefix as prefix_module

PAGE = 4
KEY = PrefixKey("model", "a16w8", "fp32", 10000.0)


def chain(tokens: list[int], key: PrefixKey = KEY, salt: str | None = None) -> PrefixChain:
    return PrefixChain(key.root(salt), tokens, PAGE)


def remember(cache: PrefixCache, pool: PagePool, tokens: list[int], **how: Any) -> PageTable:
    """A table whose full pages are remembered."""
    table = PageTable(pool)
    assert table.grow_to(len(tokens))
    for index in range(len(tokens) // PAGE):
        cache.add(chain(tokens, **how), index, table.page(index))
    return table


def test_only_full_pages_of_the_same_first_tokens_are_found() -> None:
    pool = PagePool(16, PAGE)
    cache = PrefixCache(pool)
    table = remember(cache, pool, list(range(11)))
    first, second, _ = table

    assert cache.find(chain(list(range(11))), 11) == [first, second]
    assert cache.find(chain(list(range(11))), 7) == [first]
    assert cache.find(chain([0, 1, 2, 3, 9, 5, 6, 7]), 8) == [first]
    assert cache.find(chain([9, 1, 2, 3, 4, 5, 6, 7]), 8) == []


def test_the_same_page_behind_other_tokens_is_another_page() -> None:
    pool = PagePool(16, PAGE)
    cache = PrefixCache(pool)
    remember(cache, pool, [1] * 4 + [7] * 4)

    assert cache.find(chain([2] * 4 + [7] * 4), 8) == []
    assert cache.find(chain([7] * 4), 4) == []


@pytest.mark.parametrize(
    "other",
    [
        PrefixKey("other", "a16w8", "fp32", 10000.0),
        PrefixKey("model", "fp32", "fp32", 10000.0),
        PrefixKey("model", "a16w8", "int8", 10000.0),
        PrefixKey("model", "a16w8", "fp32", 10001.0),
        PrefixKey("model", "a16w8", "fp32", 10000.0, "adapter"),
    ],
)
def test_whatever_changes_keys_and_values_keeps_pages_apart(other: PrefixKey) -> None:
    pool = PagePool(8, PAGE)
    cache = PrefixCache(pool)
    remember(cache, pool, [1] * 4)

    assert cache.find(chain([1] * 4, other), 4) == []


def test_salts_keep_pages_apart() -> None:
    pool = PagePool(8, PAGE)
    cache = PrefixCache(pool)
    remember(cache, pool, [1] * 4, salt="one")

    assert len(cache.find(chain([1] * 4, salt="one"), 4)) == 1
    assert cache.find(chain([1] * 4, salt="two"), 4) == []
    assert cache.find(chain([1] * 4), 4) == []


def test_equal_digests_of_other_tokens_hand_out_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_module, "_digest", lambda *parts: b"the same for all")
    pool = PagePool(8, PAGE)
    cache = PrefixCache(pool)
    remember(cache, pool, [1, 2, 3, 4])

    assert len(cache.find(chain([1, 2, 3, 4]), 4)) == 1
    assert cache.find(chain([1, 2, 3, 5]), 4) == []


def test_pages_stay_when_their_owner_leaves_until_they_are_needed() -> None:
    pool = PagePool(4, PAGE)
    cache = PrefixCache(pool)
    tokens = list(range(12))
    remember(cache, pool, tokens).release()
    assert (pool.num_free, pool.num_used, pool.num_idle) == (4, 0, 3)

    other = PageTable(pool)
    assert other.grow_to(2 * PAGE)  # the blank page, and the last of those idle
    assert len(cache.find(chain(tokens), 12)) == 2
    assert cache.num_evicted == 1
    pool.check_integrity([other])
    cache.check_integrity()


def test_the_page_used_last_is_evicted_last() -> None:
    pool = PagePool(2, PAGE)
    cache = PrefixCache(pool)
    remember(cache, pool, [1] * 4).release()
    remember(cache, pool, [2] * 4).release()
    PageTable(pool, cache.find(chain([1] * 4), 4)).release()
    pool.allocate()

    assert cache.find(chain([2] * 4), 4) == []
    assert len(cache.find(chain([1] * 4), 4)) == 1


def test_what_nobody_uses_is_forgotten_after_its_time() -> None:
    pool = PagePool(4, PAGE)
    cache = PrefixCache(pool, ttl_seconds=10.0)
    held = remember(cache, pool, [3] * 4)
    cache.expire(100.0)
    remember(cache, pool, [1] * 4).release()
    cache.expire(105.0)
    remember(cache, pool, [2] * 4).release()
    cache.expire(110.0)

    assert [len(cache.find(chain([token] * 4), 4)) for token in (1, 2, 3)] == [0, 1, 1]
    held.release()
    cache.expire(119.5)
    assert [len(cache.find(chain([token] * 4), 4)) for token in (2, 3)] == [0, 1]
    cache.expire(120.0)
    assert len(cache) == 0
    assert pool.num_idle == 0


def test_a_page_in_use_is_forgotten_without_being_taken_from_its_owner() -> None:
    pool = PagePool(4, PAGE)
    cache = PrefixCache(pool)
    table = remember(cache, pool, [1] * 8)
    cache.clear()

    assert len(cache) == 0
    pool.check_integrity([table])
    table.release()
    assert (pool.num_idle, pool.num_free) == (0, 4)


def test_only_owned_pages_can_be_kept() -> None:
    with pytest.raises(EngineError, match="page 1 is free: what it holds cannot be kept"):
        PagePool(4, PAGE).keep(1)


class Prefixes(RuleBasedStateMachine):
    """Sequences come, find, remember and go; what is found always holds the tokens asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(9, PAGE)
        self.cache = PrefixCache(self.pool, ttl_seconds=5.0)
        self.contents: dict[int, list[int]] = {}
        self.tables: list[PageTable] = []
        self.now = 0.0

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20), salt=st.sampled_from("ab"))
    def begin(self, tokens: list[int], salt: str) -> None:
        links = chain(tokens, salt=salt)
        found = self.cache.find(links, len(tokens))
        for index, page in enumerate(found):
            assert self.contents[page] == [ord(salt), *tokens[: PAGE * (index + 1)]]
        table = PageTable(self.pool, found)
        self.tables.append(table)
        if not table.grow_to(len(tokens)):
            return
        for index, page in enumerate(table):
            if index >= len(found):
                self.contents[page] = [ord(salt), *tokens[: PAGE * (index + 1)]]
        for index in range(len(tokens) // PAGE):
            self.cache.add(links, index, table.page(index))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.tables.remove(table)
        table.release()

    @precondition(lambda self: len(self.cache))
    @rule(page=st.integers(0, 8))
    def forget(self, page: int) -> None:
        self.cache.forget(page)

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.cache.expire(self.now)

    @invariant()
    def pages_and_digests_agree(self) -> None:
        self.pool.check_integrity(self.tables)
        self.cache.check_integrity()


TestPrefixes = Prefixes.TestCase
TestPrefixes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
