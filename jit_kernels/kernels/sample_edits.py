"""Edits of logits before a draw: x' = ((x in allowed) + bias) penalised   (Keskar et al. 2019).

In this order. Only allowed ids stay, where a list is given; a bias is added, and one of -inf bans
its id; then, for ids seen before, repetition r divides a positive logit and multiplies any other,
and frequency · count + presence · (count > 0) is taken off, counts being those of the output.
The result is a copy: the row itself stays as the model made it. Finite logits stay finite.
"""

from __future__ import annotations

from dataclasses import dataclass

from jit_kernels.dsl import (
    VECTOR_LANES,
    Array,
    RunningMax,
    Value,
    Variable,
    constant,
    if_else,
    loop,
    maximum,
    minimum,
    pointer_at,
    running_sum,
    select,
    stack_array,
    vectorized,
    when,
)
from jit_kernels.kernels.sample_cut import Logits, Survey, within
from jit_kernels.kernels.sample_request import DrawRequest
from jit_kernels.types import F32, I64

__all__ = ["Candidates", "candidates"]

_LARGEST = 3.4028234663852886e38
_BANNED = float("-inf")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Logits to draw from. The survey's smallest is the smallest above -inf.

    num_possible: how many are above -inf.
    """

    logits: Logits
    survey: Survey
    num_possible: Value[I64]


def candidates(raw: Logits, survey: Survey, request: DrawRequest, copy: Array[F32]) -> Candidates:
    """The row as it is, or edited in `copy`, which holds as many numbers."""
    address = stack_array(I64, 1)
    address[0] = raw.values.address()
    smallest, largest = Variable(survey.smallest), Variable(survey.largest)
    num_possible = Variable(raw.count)
    with when(request.num_edits > 0):
        _keep_allowed(raw, request, copy)
        _add_biases(request, copy)
        _penalise(request, copy)
        edited = Logits(copy, raw.count)
        address[0] = copy.address()
        lowest, highest = RunningMax(F32, _BANNED), RunningMax(F32, _BANNED)
        count, ones = running_sum(), constant(1.0, F32, VECTOR_LANES)
        for i in vectorized(edited.count):
            value = within(i, edited.values[i], _BANNED)
            highest.update(value)
            lowest.update(select(value > _BANNED, -value, _BANNED))
            count += select(value > _BANNED, ones, 0.0)
        smallest.set(-lowest.value())
        largest.set(highest.value())
        num_possible.set(count.value().to(I64))
    logits = Logits(pointer_at(address, 0, F32), raw.count)
    return Candidates(
        logits, Survey(smallest.get(), largest.get(), survey.finite), num_possible.get()
    )


def _keep_allowed(raw: Logits, request: DrawRequest, copy: Array[F32]) -> None:
    for limited in if_else(request.num_allowed > 0):
        for i in vectorized(raw.count):
            copy[i] = _BANNED if limited else raw.values[i]
        if limited:
            allowed = request.allowed
            for k in loop(request.num_allowed):
                token = allowed[k].to(I64)
                copy[token] = raw.values[token]


def _add_biases(request: DrawRequest, copy: Array[F32]) -> None:
    biases = request.biases
    for k in loop(request.num_biases):
        token, bias = biases[k * 2].to(I64), biases[k * 2 + 1].bits_as(F32)
        banned = bias.equals(_BANNED)
        copy[token] = select(banned, bias, _bounded(copy[token], copy[token] + bias))


def _penalise(request: DrawRequest, copy: Array[F32]) -> None:
    penalised = request.penalised
    for k in loop(request.num_penalised):
        token, count = penalised[k * 2].to(I64), penalised[k * 2 + 1].to(F32)
        value = copy[token]
        repeated = select(value > 0.0, value / request.repetition, value * request.repetition)
        reduced = repeated - request.frequency * count
        reduced = reduced - select(count > 0.0, request.presence, 0.0)
        copy[token] = _bounded(value, reduced)


def _bounded(before: Value[F32], after: Value[F32]) -> Value[F32]:
    """`after`, kept finite where `before` was: -inf stays banned."""
    finite = maximum(minimum(after, _LARGEST), -_LARGEST)
    return select(before > _BANNED, finite, before)
