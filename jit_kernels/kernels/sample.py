"""Sampling: p = softmax(x' / T), cut by min_p, top_k, top_p; id = inverse CDF of p at u.

The rule, in vLLM's order (its v1 sampler). Log-probabilities are those of the row x as the model
made it. x' is x edited: allowed ids, then bans and biases, then penalties (`sample_edits`). T = 0
takes the first token, others divide x'. Tokens are ordered by logit, largest first, equal ones by
id, lowest first. min_p drops those less likely than min_p times the first; top_k keeps the first
k; top_p then keeps the shortest beginning of what is left whose probability reaches top_p of it,
at least one token. u is Philox of (seed, choice, position), and the token is the first in order
of id at which the running probability exceeds u.
Rows are independent; one worker does a row, so bits do not depend on the others.
"""

from __future__ import annotations

from jit_kernels.dsl import (
    Array,
    Value,
    Variable,
    constant,
    exp,
    if_else,
    index,
    log,
    loop,
    maximum,
    minimum,
    running_sum,
    select,
    vectorized,
    when,
    while_loop,
)
from jit_kernels.dsl.philox import philox, uniform
from jit_kernels.kernel import kernel, worker
from jit_kernels.kernels.sample_cut import Cut, Logits, candidate_words
from jit_kernels.kernels.sample_edits import Candidates, candidates
from jit_kernels.kernels.sample_request import REQUEST_WORDS, DrawRequest
from jit_kernels.kernels.sample_top import TOP_LOGITS, Best, rank_of
from jit_kernels.types import F32, I32, I64, U8, U32

__all__ = ["NO_TOKEN", "sample", "sample_workspace_bytes"]

NO_TOKEN = -1
"""The token of a row whose every id is banned."""

_BLOCK = 256  # ids summed by the fixed tree; blocks are added in order
_SMALLEST_NORMAL = 2.0**-126


def sample_workspace_bytes(vocab: int) -> int:
    """Scratch memory of one worker: a weight per id, what a cut or the block sums need, a copy."""
    return -(-(2 * vocab + candidate_words(vocab)) * 4 // 64) * 64


@kernel
def sample(
    rows: Array[I64],
    logits: Array[F32],
    logits_stride: Value[I64],
    vocab: Value[I64],
    requests: Array[I64],
    tokens_out: Array[I32],
    finite_out: Array[I32],
    logsumexp_out: Array[F32],
    ranks_out: Array[I32],
    logits_out: Array[F32],
    top_ids_out: Array[I32],
    top_logits_out: Array[F32],
    workspace: Array[U8],
    workspace_bytes: Value[I64],
) -> None:
    """Draw a token for each row of `logits` [R, vocab].

    `requests` [R][REQUEST_WORDS]: see `DrawWords`. Where a logit is not finite: `finite_out` 0,
    token 0, log-sum NaN. Where a row reports: log(sum(exp(row))) at T = 1, rank and logit of its
    target, and the likeliest ids with their logits, [R][TOP_LOGITS], best first; otherwise these
    are not written.
    """
    me = worker()
    weights = (workspace + me.index * workspace_bytes).view(F32)
    copy = weights + (vocab * 4 + candidate_words(0))  # behind all that a draw uses
    first, last = me.share(rows[0])
    for row in loop(first, last):
        request = DrawRequest(requests + row * REQUEST_WORDS)
        drawable = minimum(request.num_ids, vocab)
        x = Logits(logits + row * logits_stride, select(drawable > 0, drawable, vocab))
        survey = x.survey()
        largest = survey.largest
        finite_out[row] = survey.finite.to(I32)
        tokens_out[row] = 0
        logsumexp_out[row] = select(survey.finite, logsumexp_out[row], float("nan"))
        with when(survey.finite):
            token = _choose(candidates(x, survey, request, copy), weights, request)
            tokens_out[row] = token
            with when(request.report > 0):
                logsumexp_out[row] = largest + log(_sum_of_exp(x, largest))
                named = request.target_plus_1 > 0
                target = select(named, request.target_plus_1 - 1, maximum(token, 0).to(I64))
                logits_out[row] = x.values[target]
                ranks_out[row] = rank_of(x, x.values[target])
                place = row * TOP_LOGITS
                Best(top_ids_out + place, top_logits_out + place).fill(x, request.report - 1)


def _choose(found: Candidates, weights: Array[F32], request: DrawRequest) -> Value[I32]:
    token = Variable(constant(NO_TOKEN, I32))
    with when(found.num_possible > 0):
        for drawn in if_else(request.temperature > 0.0):
            if drawn:
                token.set(_draw(found, weights, request).to(I32))
            else:
                token.set(found.logits.first_of(found.survey.largest))
    return token.get()


def _sum_of_exp(x: Logits, largest: Value[F32]) -> Value[F32]:
    return x.total(lambda i: exp(x.values[i] - largest))


def _draw(found: Candidates, weights: Array[F32], request: DrawRequest) -> Value[I64]:
    """Weigh, filter, choose."""
    x, survey = found.logits, found.survey
    scratch = weights + x.count
    least = minimum(request.min_p, 1.0)  # the first token weighs exactly 1, and stays
    for i in vectorized(x.count):
        weight = exp((x.values[i] - survey.largest) / request.temperature)
        weights[i] = select(weight >= least, weight, 0.0)
    cut = Cut(x, survey, weights, scratch)
    with when((request.top_k > 0) & (request.top_k < found.num_possible)):
        cut.to_count(request.top_k)
    with when(request.top_p < 1.0):
        whole = x.total(lambda i: weights[i])
        cut.to_weight(maximum(request.top_p * whole, _SMALLEST_NORMAL))
    return _inverse_cdf(weights, scratch, x.count, _uniform(request))


def _uniform(request: DrawRequest) -> Value[F32]:
    """The random number of a draw, in [0, 1)."""
    position, seed = _halves(request.position), _halves(request.seed)
    return uniform(philox((*position, request.choice.to(U32), constant(0, U32)), seed))


def _inverse_cdf(
    weights: Array[F32], block_sums: Array[F32], vocab: Value[I64], u: Value[F32]
) -> Value[I64]:
    """The first id at which the sum of weights exceeds `u` of the total."""
    num_blocks = (vocab + (_BLOCK - 1)) // _BLOCK
    total = Variable(constant(0.0, F32))
    for block in loop(num_blocks):
        inside = running_sum()
        start = weights + block * _BLOCK
        for i in vectorized(minimum(vocab - block * _BLOCK, _BLOCK)):
            inside += start[i]
        block_sums[block] = inside.value()
        total.set(total.get() + inside.value())
    target = u * total.get()
    block, sum_before = Variable(index(0)), Variable(constant(0.0, F32))
    # u < 1 and the same additions as above: the walk stops at a block that holds some weight.
    for _ in while_loop(lambda: sum_before.get() + block_sums[block.get()] <= target):
        sum_before.set(sum_before.get() + block_sums[block.get()])
        block.set(block.get() + 1)
    return _first_beyond(weights, block.get() * _BLOCK, vocab, sum_before.get(), target)


def _first_beyond(
    weights: Array[F32],
    start: Value[I64],
    vocab: Value[I64],
    before: Value[F32],
    target: Value[F32],
) -> Value[I64]:
    """Walk one block id by id; where rounding leaves its sum short, its last weighted id."""
    stop = minimum(start + _BLOCK, vocab)
    position, token, reached = Variable(start), Variable(start), Variable(before)
    for _ in while_loop(lambda: (position.get() < stop) & (reached.get() <= target)):
        weight = weights[position.get()]
        token.set(select(weight > 0.0, position.get(), token.get()))
        reached.set(reached.get() + weight)
        position.set(position.get() + 1)
    return token.get()


def _halves(word: Value[I64]) -> tuple[Value[U32], Value[U32]]:
    """Lower and upper half of a 64-bit word."""
    return word.to(U32), (word >> 32).to(U32)
