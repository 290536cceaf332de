"""The matrix product out = activations @ weights: GEMV forms for few rows, blocked for many.

One kernel serves every number of rows and chooses its form when it runs. Each output element is
computed by the same operations in the same order in every form, so its bits do not depend on the
other rows, the number of workers, or who computes what.

    1, 2, 3, 4 rows
        a unit is a run of panels; weights are decoded straight into the sums
    to 64 rows
        a piece of K of a panel meets every eight or four of them, and the rest; then the next piece
    more
        a claim is (row block, panel), or the panels of a group of gated units; per K block a
        panel's weights are unpacked once into the workspace, then met by every strip of the block

Knows the order of the work; the formats (`Weights`) know what their words mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jit_kernels.activation_layout import GEMV_ROWS, REDUNDANT_ROWS
from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    Value,
    VectorIndex,
    claimed,
    index,
    loop,
    maximum,
    minimum,
    select,
    when,
    zeros,
)
from jit_kernels.dsl.trace import current
from jit_kernels.kernel import worker
from jit_kernels.kernels.claims import COUNTER_WORDS, claimed_near
from jit_kernels.kernels.gated_units import Turn
from jit_kernels.kernels.linear_operands import (
    PANEL_SUMS,
    WORKSPACE_BYTES,
    Block,
    Piece,
    Product,
    Weights,
)
from jit_kernels.kernels.linear_tiles import (
    ActivationRows,
    Prefetch,
    Tile,
    rows_in_registers,
)
from jit_kernels.types import BOOL, F32, I64, U32

__all__ = ["WORKSPACE_BYTES", "claimed_runs", "multiply"]

_SHORT_RUNS = 64  # this many short runs would be a worker's share
_SHORTEST_RUN = 3  # panels
_MANY_SHARED_FROM = 64  # panels for each worker, where each of them is much work


def multiply(product: Product, weights: Weights) -> None:
    """Run the product in the form that its number of rows asks for."""
    num_rows = product.num_rows
    for rows in range(1, REDUNDANT_ROWS + 1):
        with when(num_rows.equals(rows)):
            _gemv(product, weights, rows)
    with when((num_rows > REDUNDANT_ROWS) & (num_rows <= GEMV_ROWS)):
        _gemv_blocks(product, weights)
    with when(num_rows > GEMV_ROWS):
        _gemm(product, weights)


def claimed_runs(
    counter: Array[I64], total: Value[I64], shared_from: int
) -> Iterator[tuple[Value[I64], Value[I64]]]:
    """One long run of panels for each worker, read as one stream; where there are many, short runs.

    `shared_from`: how many panels for each worker are many.

    A run begins without anything prefetched, and a claim costs a cache line's trip between cores:
    for few panels both cost more than workers that end apart.
    """
    workers = worker().count
    head = select(total < workers * shared_from, total, total * 7 // 8)
    short = maximum(total // (workers * _SHORT_RUNS), _SHORTEST_RUN)
    num_short = (total - head + short - 1) // short
    for unit in claimed(counter, workers + num_short):
        is_long, tail = unit < workers, head + (unit - workers) * short
        begin = select(is_long, head * unit // workers, tail)
        end = select(is_long, head * (unit + 1) // workers, minimum(tail + short, total))
        yield begin, end


def _gemv(product: Product, weights: Weights, rows: int) -> None:
    """Exactly `rows` rows.

    A run is read as several streams side by side: memory then has more to do at a time.
    """
    num_streams, schedule = weights.num_streams(rows), product.schedule
    alone, several = Prefetch.for_one(weights.arithmetic), Prefetch.for_several(schedule.few_ahead)
    ahead = alone if rows == 1 else several
    for begin, end in claimed_runs(product.counter, product.num_panels, schedule.shared_from):
        length = (end - begin) // num_streams
        for first in loop(begin, begin + length):
            panels = [first + length * stream for stream in range(num_streams)]
            _multiply_panels(product, weights, rows, panels, ahead)
        if num_streams > 1:
            for panel in loop(begin + length * num_streams, end):
                _multiply_panels(product, weights, rows, [panel], ahead)


def _multiply_panels(
    product: Product,
    weights: Weights,
    rows: int,
    panels: list[Value[I64]],
    prefetch: Prefetch | None,
) -> None:
    """The products of the first `rows` rows, few enough for one decoding."""
    in_registers = rows <= rows_in_registers(current().isa)
    memory = product.scratch.tiles
    tiles = [
        Tile.in_registers(rows) if in_registers else Tile.in_memory(memory, rows) for _ in panels
    ]
    for tile in tiles:
        tile.clear()
    indices = [index(row) for row in range(rows)]
    activations = product.rows_from(index(0), rows)
    for piece in weights.pieces():
        weights.add_packed(tiles, panels, piece, activations, indices, prefetch)
    for panel, tile in zip(panels, tiles, strict=True):
        for row, place in enumerate(indices):
            product.destination.finish(place, panel, tile[row])


def _gemv_blocks(product: Product, weights: Weights) -> None:
    """As many rows at a time as share a decoding, then what is left of them."""
    together = weights.num_streams(1)
    for begin, end in claimed_runs(product.counter, product.num_panels, _MANY_SHARED_FROM):
        whole = begin + (end - begin) // together * together
        for panel in loop(begin, whole, together):
            _meet_all_rows(product, weights, panel, together)
        if together > 1:
            for panel in loop(whole, end):
                _meet_all_rows(product, weights, panel, 1)


def _meet_all_rows(
    product: Product, weights: Weights, first_panel: Value[I64], num_panels: int
) -> None:
    """The products of neighbouring panels: all rows meet one piece of K, then the next.

    A piece so comes from memory at the pace of all rows' work on it, and its weights are in L1 for
    all but the first of them.
    """
    num_rows, sums = product.num_rows, product.scratch.tiles
    for place in loop(num_rows * num_panels):
        sums[VectorIndex(place * VECTOR_LANES)] = zeros(F32)
    for piece in weights.pieces():
        _pass_all_rows(product, weights, piece, first_panel, num_panels)
    for number in loop(num_panels):
        for row in loop(num_rows):
            total = sums.vector((number * num_rows + row) * VECTOR_LANES)
            product.destination.finish(row, first_panel + number, total)


def _pass_all_rows(
    product: Product,
    weights: Weights,
    piece: Piece,
    first_panel: Value[I64],
    num_panels: int,
) -> None:
    """Add a piece of neighbouring panels to the sums, [panel][row], of every row."""
    num_rows, most = product.num_rows, product.schedule.pass_rows
    ahead = product.schedule.many_ahead

    def add(first: Value[I64], rows: int) -> None:
        # Each pass asks again: a request is dropped where too many are under way.
        prefetch = Prefetch.for_several(ahead) if rows >= 4 else None
        indices = [first + row for row in range(rows)]
        activations = product.rows_from(first, rows)

        def meet(numbers: Sequence[Value[I64]]) -> None:
            places = [(number * num_rows + first) * VECTOR_LANES for number in numbers]
            tiles = [Tile.in_memory(product.scratch.tiles + place, rows) for place in places]
            panels = [first_panel + number for number in numbers]
            weights.add_packed(tiles, panels, piece, activations, indices, prefetch)

        # Beside this loop two rows of two panels do not stay in 16 registers.
        fits = rows == 1 or current().isa.num_registers > 16
        if fits and weights.num_streams(rows) == num_panels:
            meet([index(number) for number in range(num_panels)])
        else:
            for number in loop(num_panels):
                meet([number])

    for first in loop(0, num_rows // most * most, most):
        add(first, most)
    if most == 8:
        with when((num_rows & 4) > 0):
            add(num_rows // 8 * 8, 4)
    rest = num_rows & 3
    for rows in (1, 2, 3):
        with when(rest.equals(rows)):
            add(num_rows - rest, rows)


def _gemm(product: Product, weights: Weights) -> None:
    """Row blocks outermost: their activations stay in L2 while the panels pass.

    A gated product takes a panel of gates and then that of the same columns' ups, and panels whose
    units are prepared together one after the other.
    """
    units = product.destination.units
    halves, together = (1, 1) if units is None else (2, units.num_panels)
    num_columns = product.num_panels // halves
    num_claims = num_columns // together
    num_strips = (product.num_rows + product.row_tile - 1) // product.row_tile
    num_blocks = _num_row_blocks(product, num_strips, num_claims)
    for claim in claimed_near(product.counter, num_blocks * num_claims):
        row_block, own = claim // num_claims, claim % num_claims
        first = row_block * num_strips // num_blocks
        last = (row_block + 1) * num_strips // num_blocks
        # Workers that have a part in common take its claims in turns.
        likely = (own + maximum(worker().count // COUNTER_WORDS, 1)) * together
        for step in loop(halves * together):
            number, half = step // halves, step % halves
            column = own * together + number
            panel = column + half * num_columns
            turn = Turn(number, number.equals(together - 1))
            is_final = half.equals(halves - 1)
            next_column = select(turn.is_last, likely, column + 1)
            following = select(is_final, next_column, panel + num_columns)
            _row_block(product, weights, _Part(panel, following, half, is_final, turn), first, last)


def _num_row_blocks(product: Product, num_strips: Value[I64], num_claims: Value[I64]) -> Value[I64]:
    """Blocks of as many rows as stay in L2; more where workers would have less than two claims."""
    most = -(-product.schedule.row_block // product.row_tile)
    fewest = (num_strips + most - 1) // most
    wanted = (2 * worker().count + num_claims - 1) // num_claims
    return minimum(maximum(fewest, wanted), num_strips)


@dataclass(frozen=True, slots=True)
class _Part:
    """A panel of a unit, the one that is probably next, and whether its columns end with it."""

    panel: Value[I64]
    following: Value[I64]
    half: Value[I64]
    is_final: Value[BOOL]
    turn: Turn


def _row_block(
    product: Product,
    weights: Weights,
    part: _Part,
    first_strip: Value[I64],
    last_strip: Value[I64],
) -> None:
    row_tile, scratch = product.row_tile, product.scratch
    block_words = product.schedule.block_steps // weights.steps
    for first_word in loop(0, product.num_words, block_words):
        num_words = minimum(product.num_words - first_word, block_words)
        block = Block(part.panel, first_word, num_words)
        unpacked = weights.unpack(block, scratch)
        is_last = first_word + block_words >= product.num_words
        is_end = is_last & part.is_final
        upcoming = _next_block(weights, block, block_words, part.following, is_last)
        for strip in loop(first_strip, last_strip):
            first_row = strip * row_tile
            done, num_strips = strip - first_strip, last_strip - first_strip
            _prefetch_share(upcoming, block_words, done, num_strips)
            sums = scratch.tiles + done * (row_tile * VECTOR_LANES)
            tile = Tile.in_memory(sums + part.half * PANEL_SUMS, row_tile)
            with when(first_word.equals(0)):
                tile.clear()
            with when(is_end):
                product.prefetch(first_row, part.panel)
            step = strip * product.row_steps + first_word * weights.steps
            words = product.activations + step * row_tile
            rows = [minimum(first_row + row, product.num_rows - 1) for row in range(row_tile)]
            activations = ActivationRows.strip(words, row_tile)
            weights.add_unpacked(tile, block, unpacked, scratch, activations, rows)
            with when(is_end):
                product.finish_strip(strip, done, part.panel, part.turn)


def _next_block(
    weights: Weights,
    block: Block,
    block_words: int,
    following: Value[I64],
    is_last: Value[BOOL],
) -> Array[U32]:
    """The packed words that this worker will probably unpack next."""
    panel = select(is_last, following, block.panel)
    first_word = select(is_last, index(0), block.first_word + block_words)
    return weights.packed(Block(panel, first_word, block.num_words))


def _prefetch_share(
    words: Array[U32], num_lines: int, part: Value[I64], num_parts: Value[I64]
) -> None:
    """Ask for one of `num_parts` parts of some lines."""
    for line in loop(part * num_lines // num_parts, (part + 1) * num_lines // num_parts):
        (words + line * VECTOR_LANES).prefetch(0)
