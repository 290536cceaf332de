"""What attention works on and where it lies: items of a step, units of work, pages of a request.

An item is eight 64-bit words: {first row, number of rows, position of the first row, where its
request's page table begins, segment or -1 for all, partial slot, 0, 0}. A unit of work is one kv
head of an item. Knows nothing of arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from jit_kernels.dsl import Array, Value, maximum, minimum, select
from jit_kernels.kernels.kv_pages import HeadPage, Layout
from jit_kernels.kv_layout import PAGE_SIZE
from jit_kernels.types import BOOL, I32, I64, U8

__all__ = [
    "ITEM_WORDS",
    "PAGES_PER_SEGMENT",
    "SEGMENT_SIZE",
    "Cache",
    "Pages",
    "Reading",
    "Unit",
    "first_segment",
    "num_pages",
]

SEGMENT_SIZE = 128
PAGES_PER_SEGMENT = SEGMENT_SIZE // PAGE_SIZE
ITEM_WORDS = 8


def num_pages(num_keys: Value[I64]) -> Value[I64]:
    """Pages that hold so many keys."""
    return (num_keys + (PAGE_SIZE - 1)) // PAGE_SIZE


def first_segment(position: Value[I64], window: Value[I64]) -> Value[I64]:
    """The segment of the first key that a row sees of the last `window`."""
    return maximum(position + 1 - window, 0) // SEGMENT_SIZE


@dataclass(frozen=True, slots=True)
class Unit:
    """One kv head of one item: rows at `position` .. `last`, segments `first` .. `end` - 1."""

    item: Array[I64]
    kv_head: Value[I64]
    window: Value[I64] | None = None

    @staticmethod
    def at(
        items: Array[I64],
        number: Value[I64],
        num_kv_heads: Value[I64],
        window: Value[I64] | None = None,
    ) -> Unit:
        """The unit of that number; rows see the last `window` keys, all where it is None."""
        item = items + number // num_kv_heads * ITEM_WORDS
        return Unit(item, number % num_kv_heads, window)

    @property
    def first_row(self) -> Value[I64]:
        """Row of the step that the item's first row is."""
        return self.item[0]

    @property
    def num_rows(self) -> Value[I64]:
        """Rows, at consecutive positions."""
        return self.item[1]

    @property
    def position(self) -> Value[I64]:
        """Position of the first row: the last key it sees."""
        return self.item[2]

    @property
    def last(self) -> Value[I64]:
        """Position of the last row."""
        return self.position + self.num_rows - 1

    @property
    def table(self) -> Value[I64]:
        """Where the request's pages are listed."""
        return self.item[3]

    @property
    def is_whole(self) -> Value[BOOL]:
        """Whether the unit walks all segments, rather than one of them."""
        return self.item[4] < 0

    @property
    def first_segment(self) -> Value[I64]:
        """First segment to attend to; `end_segment` or beyond where the window is past it."""
        first = maximum(self.item[4], 0)
        if self.window is None:
            return first
        return maximum(first, first_segment(self.position, self.window))

    @property
    def end_segment(self) -> Value[I64]:
        """One past the last."""
        return select(self.is_whole, self.last // SEGMENT_SIZE, self.item[4]) + 1

    @property
    def first_page(self) -> Value[I64]:
        """Page of the first key that any row sees."""
        first = maximum(self.item[4], 0) * PAGES_PER_SEGMENT
        if self.window is None:
            return first
        return maximum(first, maximum(self.position + 1 - self.window, 0) // PAGE_SIZE)

    @property
    def end_page(self) -> Value[I64]:
        """One past the page of the last key that any row sees."""
        return minimum(self.last // PAGE_SIZE + 1, self.end_segment * PAGES_PER_SEGMENT)

    @property
    def slot(self) -> Value[I64]:
        """Where the state of a lone segment goes."""
        return self.item[5]


@dataclass(frozen=True, slots=True)
class Pages:
    """Some pages of a request, as one kv head sees them.

    Page numbers count from `first_page`; those past `last_page` stand for the last.
    """

    layout: Layout
    memory: Array[U8]
    table: Array[I32]
    num_kv_heads: Value[I64]
    first_page: Value[I64]
    last_page: Value[I64]

    @property
    def start(self) -> Value[I64]:
        """Position of the first key."""
        return self.first_page * PAGE_SIZE

    def __getitem__(self, page: Value[I64]) -> HeadPage:
        """The head's part of a page."""
        entry = minimum(self.first_page + page, self.last_page)
        return self.layout.block(self.memory, self.table[entry].to(I64) * self.num_kv_heads)


@dataclass(frozen=True, slots=True)
class Cache:
    """A layer's pages and the tables that say where a request's lie."""

    layout: Layout
    memory: Array[U8]
    tables: Array[I32]
    num_kv_heads: Value[I64]

    def pages(self, unit: Unit, segment: Value[I64]) -> Pages:
        """A unit's pages from a segment on."""
        return Pages(
            self.layout,
            self.memory + unit.kv_head * self.layout.block_bytes,
            self.tables + unit.table,
            self.num_kv_heads,
            segment * PAGES_PER_SEGMENT,
            unit.last // PAGE_SIZE,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """Pages in the order in which a worker reads them: its unit's, then those of its `next_unit`.

    Page numbers are the unit's own, and go on past its last page.
    """

    cache: Cache
    unit: Unit
    next_unit: Unit

    @property
    def lead(self) -> Value[I64]:
        """Pages from one whose values are read to one whose keys are worth asking for.

        A segment, for so long the keys take; a shorter unit asks for the next one page by page.
        """
        return minimum(self.unit.end_page - self.unit.first_page, PAGES_PER_SEGMENT)

    def __getitem__(self, page: Value[I64]) -> HeadPage:
        """The page with that number, as the head sees it that will read it."""
        unit, then, cache = self.unit, self.next_unit, self.cache
        is_own = page < unit.end_page
        beyond = minimum(then.first_page + page - unit.end_page, then.end_page - 1)
        entry = select(is_own, unit.table + page, then.table + beyond)
        head = select(is_own, unit.kv_head, then.kv_head)
        block = cache.tables[entry].to(I64) * cache.num_kv_heads + head
        return cache.layout.block(cache.memory, block)
