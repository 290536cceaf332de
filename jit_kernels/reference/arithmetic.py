"""float32 arithmetic with the kernels' bits, in NumPy: fma, exp, tanh, log, the fixed tree.

Written from the formulas, not from the generator, so that each checks the other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["exp", "fma", "fold", "log", "sigmoid", "tanh", "tree_sum", "tree_sum_of_squares"]

_LANES = 16
_LOG2_E = (1.4426950216293335, 1.9259629911e-8)
_EXP2 = (0.69314700, 0.24022241, 0.055507347, 0.0096715763, 0.0013264646)
_ROUNDING_SHIFT = 1.5 * 2**23  # beside it float32 are whole numbers
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP_ZERO, _EXP_HIGHEST, _SIGMOID_LOWEST = -88.0, 88.72283, -87.33654


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> NDArray[np.float32]:
    """a * b + c of float32 operands, rounded once."""
    a, b, c = (np.asarray(operand, np.float32).astype(np.float64) for operand in (a, b, c))
    with np.errstate(all="ignore"):
        product = a * b  # exact: 48 bits
        total = product + c
        # Knuth's two-sum gives the rounding error; rounding to odd makes the next rounding right.
        shadow = total - product
        error = (product - (total - shadow)) + (c - shadow)
        even = (total.view(np.int64) & 1) == 0
        inexact = np.isfinite(total) & (error != 0)
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        return np.where(inexact & even, odd, total).astype(np.float32)


def exp(x: ArrayLike) -> NDArray[np.float32]:
    """e**x = 2**(x log2 e), every product and sum where `dsl.math.exp` has it."""
    x = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        number = np.where(np.isnan(x), np.float32(0), x)
        clamped = np.clip(number, np.float32(_EXP_ZERO), np.float32(_EXP_HIGHEST))
        power = fma(clamped, _LOG2_E[0], _ROUNDING_SHIFT) - np.float32(_ROUNDING_SHIFT)
        rest = fma(clamped, _LOG2_E[1], fma(clamped, _LOG2_E[0], -power))
        square = rest * rest
        highest = fma(square, _EXP2[4], fma(rest, _EXP2[3], _EXP2[2]))
        polynomial = fma(square, highest, fma(rest, _EXP2[1], _EXP2[0]))
        mantissa = fma(rest, polynomial, 1)
        half = power.astype(np.int32) >> 1
        result = mantissa * _power_of_two(half) * _power_of_two(power.astype(np.int32) - half)
        result = np.where(power < -126, np.float32(0), result)
        result = np.where(x > np.float32(_EXP_HIGHEST), np.float32(np.inf), result)
        return np.where(np.isnan(x), x, result)


def _power_of_two(exponent: NDArray[np.int32]) -> NDArray[np.float32]:
    return np.ldexp(np.float32(1), exponent).astype(np.float32)


def sigmoid(x: ArrayLike) -> NDArray[np.float32]:
    """1 / (1 + e**-x), 0 below -87.3."""
    x = np.asarray(x, np.float32)
    result = np.float32(1) / (exp(-x) + np.float32(1))
    return np.where(x < np.float32(_SIGMOID_LOWEST), np.float32(0), result)


def tanh(x: ArrayLike) -> NDArray[np.float32]:
    """(1 - e**-2|x|) / (1 + e**-2|x|) with the sign of x."""
    x = np.asarray(x, np.float32)
    decay = exp(abs(x) * np.float32(-2))
    magnitude = (np.float32(1) - decay) / (decay + np.float32(1))
    return np.where(x < 0, -magnitude, magnitude)


def log(x: ArrayLike) -> NDArray[np.float32]:
    """Natural logarithm of positive normal numbers: Cephes logf, as `dsl.math.log` has it."""
    x = np.asarray(x, np.float32)
    mantissa, exponent = np.frexp(x)
    small = mantissa < np.float32(0.70710678)
    power = (exponent - small).astype(np.float32)
    rest = np.where(small, mantissa + mantissa, mantissa) - np.float32(1)
    square = rest * rest
    polynomial = np.full(x.shape, _LOG[0], np.float32)
    for coefficient in _LOG[1:]:
        polynomial = fma(polynomial, rest, coefficient)
    result = rest * square * polynomial
    result = fma(power, _LN2_LOW, result)
    result = fma(square, np.float32(-0.5), result)
    return fma(power, _LN2_HIGH, rest + result)


def fold(lanes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum of 16 lanes [..., 16]: lower half plus upper half, down to one."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def tree_sum(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum over the last axis: term i goes to lane i % 16, in order; then the fold."""
    vectors = _vectors(terms)
    lanes = np.zeros((*terms.shape[:-1], _LANES), np.float32)
    for position in range(vectors.shape[-2]):
        lanes = lanes + vectors[..., position, :]
    return fold(lanes)


def tree_sum_of_squares(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sum of squares over the last axis, each added with one rounding."""
    vectors = _vectors(terms)
    lanes = np.zeros((*terms.shape[:-1], _LANES), np.float32)
    for position in range(vectors.shape[-2]):
        lanes = fma(vectors[..., position, :], vectors[..., position, :], lanes)
    return fold(lanes)


def _vectors(terms: NDArray[np.float32]) -> NDArray[np.float32]:
    """[..., n] as [..., ceil(n/16), 16], padded with zeros."""
    n = terms.shape[-1]
    num_vectors = -(-n // _LANES)
    padded = np.zeros((*terms.shape[:-1], num_vectors * _LANES), np.float32)
    padded[..., :n] = terms
    return padded.reshape(*terms.shape[:-1], num_vectors, _LANES)
