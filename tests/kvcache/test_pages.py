from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dashinfer_lab.errors import ConfigError, EngineError
from dashinfer_lab.kvcache import PagePool, PageTable
from jit_kernels.kv_layout import PAGE_SIZE


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 32), (-1, 32), (3, 0)])
def test_a_pool_without_room_is_refused_with_its_values(num_pages: int, page_size: int) -> None:
    with pytest.raises(ConfigError, match=f"{num_pages} pages of {page_size}"):
        PagePool(num_pages, page_size)


@pytest.mark.parametrize(
    ("num_tokens", "pages"), [(0, 0), (1, 1), (PAGE_SIZE, 1), (PAGE_SIZE + 1, 2), (1003, 32)]
)
def test_a_table_owns_exactly_the_pages_its_tokens_begin(num_tokens: int, pages: int) -> None:
    pool = PagePool(40)
    table = PageTable(pool)

    assert table.grow_to(num_tokens)
    assert (len(table), pool.num_used) == (pages, pages)
    assert len(set(table)) == pages


def test_growing_beyond_the_pool_takes_nothing() -> None:
    pool = PagePool(3, page_size=4)
    table = PageTable(pool)
    table.grow_to(5)

    assert not table.grow_to(13)
    assert (len(table), pool.num_free) == (2, 1)


def test_covering_leaves_out_pages_behind_the_last_token() -> None:
    table = PageTable(PagePool(8, page_size=4))
    table.grow_to(17)

    assert table.covering(8) == tuple(table)[:2]
    assert table.covering(9) == tuple(table)[:3]


def test_a_shared_page_is_free_only_after_its_last_owner() -> None:
    pool = PagePool(2)
    page = pool.allocate()
    pool.share(page)

    pool.release(page)
    assert (pool.ref_count(page), pool.num_free) == (1, 1)
    pool.release(page)
    assert (pool.ref_count(page), pool.num_free) == (0, 2)


def test_misuse_is_an_error_that_names_the_page() -> None:
    pool = PagePool(1)
    page = pool.allocate()

    with pytest.raises(EngineError, match="all 1 pages"):
        pool.allocate()
    pool.release(page)
    with pytest.raises(EngineError, match="page 0 is free already"):
        pool.release(page)
    with pytest.raises(EngineError, match="page 0 is free and cannot"):
        pool.share(page)
    with pytest.raises(EngineError, match="page 1 is not one of"):
        pool.release(1)


def test_integrity_finds_a_page_that_leaked_and_one_owned_twice() -> None:
    pool = PagePool(3)
    one, two = pool.allocate(), pool.allocate()

    pool.check_integrity([[one], [two]])
    with pytest.raises(EngineError, match=f"page {two} is counted 1"):
        pool.check_integrity([[one]])
    with pytest.raises(EngineError, match=f"page {one} is counted 1"):
        pool.check_integrity([[one, two], [one]])
    with pytest.raises(EngineError, match="no such pages as .9"):
        pool.check_integrity([[one, two, 9]])


def test_integrity_finds_a_free_list_that_disagrees_with_the_counts() -> None:
    pool = PagePool(3)
    page = pool.allocate()
    pool._blank.append(page)  # pyright: ignore[reportPrivateUsage]  # the fault to be found

    with pytest.raises(EngineError, match=f"page {page} has 1 owners and is on the free list"):
        pool.check_integrity()


class Pages(RuleBasedStateMachine):
    """Tables grow, go and share pages; the pool must agree after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(13, page_size=4)
        self.tables: list[PageTable] = []
        self.shared: list[int] = []

    @rule(num_tokens=st.integers(0, 60))
    def begin(self, num_tokens: int) -> None:
        table = PageTable(self.pool)
        fits = self.pool.pages_for(num_tokens) <= self.pool.num_free
        assert table.grow_to(num_tokens) == fits
        self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), more=st.integers(0, 20))
    def grow(self, data: st.DataObject, more: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        before = list(table)
        grown = table.grow_to(table.num_tokens_capacity + more)
        assert list(table)[: len(before)] == before
        assert grown or list(table) == before

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.tables.remove(table)
        table.release()
        table.release()

    @precondition(lambda self: self.pool.num_used)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        owned = [p for p in range(self.pool.num_pages) if self.pool.ref_count(p)]
        page = data.draw(st.sampled_from(owned))
        self.pool.share(page)
        self.shared.append(page)

    @precondition(lambda self: self.shared)
    @rule()
    def unshare(self) -> None:
        self.pool.release(self.shared.pop())

    @invariant()
    def every_page_is_free_or_owned(self) -> None:
        self.pool.check_integrity([*self.tables, self.shared])


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
