"""Functions of real numbers: one polynomial each, the same bits on every instruction set.

exp: 2**(x log2 e), relative error below 2e-7 on [-87.3, 88.7]; exp(0) = 1 exactly and 0 below
-87.7, NaN stays NaN, above 88.7 the result is +inf.
tanh: (1 - e**-2|x|) / (1 + e**-2|x|) with the sign of x; absolute error below 2e-7.
log: Cephes logf, error below 2 ulp; log(1) = 0 exactly; for positive normal numbers only.
sigmoid: 1 / (1 + e**-x), relative error below 4e-7; 0 where that is below 2**-126.
"""

from __future__ import annotations

from collections.abc import Callable

from jit_kernels.dsl.intrinsics import (
    ROUNDING_SHIFT,
    ROUNDING_SHIFT_BITS,
    float_absolute,
    fma,
    sqrt,
)
from jit_kernels.dsl.values import Value, constant, maximum, minimum, select
from jit_kernels.types import F32, I32, U16, U32

__all__ = [
    "bf16_to_f32",
    "exp",
    "exp_nonpositive",
    "log",
    "round_to_bf16",
    "sigmoid",
    "sqrt",
    "tanh",
]

_LOG2_E = 1.4426950216293335  # a float32
_LOG2_E_REST = 1.9259629911e-8
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_EXP2_POLYNOMIAL = (0.69314700, 0.24022241, 0.055507347, 0.0096715763, 0.0013264646)
_LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
_SQRT_HALF = 0.70710678
_EXP_LOWEST = -87.33654  # below it e**x is no normal number
_EXP_ZERO = -88.0  # and from -126.5 ln 2 on it is 0
_LOWEST_EXPONENT = -126
_EXP_HIGHEST = 88.72283


def _numbers_like(x: Value[F32]) -> Callable[[float], Value[F32]]:
    """What makes constants of as many lanes as `x` has."""
    return lambda value: constant(value, F32, x.lanes)


def exp(x: Value[F32]) -> Value[F32]:
    """e**x per lane."""
    number = _numbers_like(x)
    clamped = minimum(maximum(x, number(_EXP_ZERO)), number(_EXP_HIGHEST))
    shifted, mantissa = _shifted_power_and_mantissa(clamped)
    quotient = shifted.bits_as(I32) - ROUNDING_SHIFT_BITS
    # 2**quotient in two factors: quotient reaches 128, whose exponent field would overflow.
    half = quotient >> 1
    result = mantissa * _power_of_two(half) * _power_of_two(quotient - half)
    result = select(quotient < _LOWEST_EXPONENT, number(0.0), result)
    result = select(x > number(_EXP_HIGHEST), number(float("inf")), result)
    return select(x.is_nan(), x, result)


def exp_nonpositive(x: Value[F32]) -> Value[F32]:
    """e**x per lane, none above 0: the bits of `exp` with half the instructions."""
    return _exp_between(maximum(constant(_EXP_ZERO, F32, x.lanes), x))  # NaN stays NaN


def _exp_between(x: Value[F32]) -> Value[F32]:
    """The bits of `exp` from `_EXP_ZERO` to 88, or where x is NaN."""
    shifted, mantissa = _shifted_power_and_mantissa(x)
    power = ((shifted.bits_as(I32) << 23) + (127 << 23)).bits_as(F32)
    return mantissa * power  # 2**q, and 0 for q = -127


def _shifted_power_and_mantissa(x: Value[F32]) -> tuple[Value[F32], Value[F32]]:
    """ROUNDING_SHIFT + q, whose lowest bits are those of q = rint(x / ln 2), and e**x / 2**q."""
    number = _numbers_like(x)
    shifted = fma(x, number(_LOG2_E), number(ROUNDING_SHIFT))
    power = shifted - number(ROUNDING_SHIFT)
    rest = fma(x, number(_LOG2_E), -power)
    rest = fma(x, number(_LOG2_E_REST), rest)
    c1, c2, c3, c4, c5 = map(number, _EXP2_POLYNOMIAL)
    # Three short chains (Estrin): what waits for one long chain fills the schedulers.
    square = rest * rest
    highest = fma(square, c5, fma(rest, c4, c3))
    polynomial = fma(square, highest, fma(rest, c2, c1))
    return shifted, fma(rest, polynomial, number(1.0))


def _power_of_two(exponent: Value[I32]) -> Value[F32]:
    return ((exponent + 127) << 23).bits_as(F32)


def log(x: Value[F32]) -> Value[F32]:
    """Natural logarithm per lane; each must be a positive normal number."""
    number = _numbers_like(x)
    bits = x.bits_as(I32)
    mantissa = ((bits & 0x007FFFFF) | 0x3F000000).bits_as(F32)
    exponent = (bits >> 23) - 126
    # x = rest + 1 times a power of two, with rest + 1 between sqrt(1/2) and sqrt(2).
    small = mantissa < number(_SQRT_HALF)
    power = select(small, exponent - 1, exponent).to(F32)
    rest = select(small, mantissa + mantissa, mantissa) - number(1.0)
    square = rest * rest
    polynomial = number(_LOG_POLYNOMIAL[0])
    for coefficient in _LOG_POLYNOMIAL[1:]:
        polynomial = fma(polynomial, rest, number(coefficient))
    result = rest * square * polynomial
    result = fma(power, number(_LN2_LOW), result)
    result = fma(square, number(-0.5), result)
    return fma(power, number(_LN2_HIGH), rest + result)


def sigmoid(x: Value[F32]) -> Value[F32]:
    """1 / (1 + e**-x) per lane; 0 below -87.3, where it is no normal number."""
    number = _numbers_like(x)
    lowest = number(_EXP_LOWEST)
    within = minimum(number(-_EXP_LOWEST), maximum(lowest, -x))  # NaN stays NaN
    return select(x < lowest, number(0.0), 1.0 / (_exp_between(within) + 1.0))


def tanh(x: Value[F32]) -> Value[F32]:
    """Hyperbolic tangent per lane."""
    decay = exp_nonpositive(float_absolute(x) * -2.0)
    magnitude = (1.0 - decay) / (decay + 1.0)
    return select(x < 0.0, -magnitude, magnitude)


def bf16_to_f32(bits: Value[U16]) -> Value[F32]:
    """bfloat16 bits widened exactly."""
    return (bits.to(U32) << 16).bits_as(F32)


def round_to_bf16(x: Value[F32]) -> Value[U16]:
    """float32 to bfloat16 bits, to nearest even; NaN becomes 0x7fc0."""
    bits = x.bits_as(U32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = constant(0x7FC0, U32, x.lanes)
    return select(x.is_nan(), quiet, rounded).to(U16)
