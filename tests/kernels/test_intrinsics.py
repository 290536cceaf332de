"""Every intrinsic against the NumPy body that defines it."""

from __future__ import annotations

import numpy as np
import pytest

from jit_kernels.dsl import Array, intrinsics
from jit_kernels.isa import NEON, Isa
from jit_kernels.kernel import kernel
from jit_kernels.types import F32, I8, I16, I32, U8, U16
from tests.kernels.guarded import guarded
from tests.kernels.machine_code import compiled, each_isa, same_bits

FLOAT_TO_FLOAT = ("sqrt", "float_absolute")


@kernel
def unary(y: Array[F32], x: Array[F32], *, name: str) -> None:
    y[0], wide = getattr(intrinsics, name)(x[0]), getattr(intrinsics, name)(x.vector(0))
    y[1] = wide


@kernel
def rounded(y: Array[I32], x: Array[F32]) -> None:
    y[0] = intrinsics.round_to_int(x[0])
    y[1] = intrinsics.round_to_int(x.vector(0))


@kernel
def widened(y: Array[F32], x: Array[U16]) -> None:
    y[0] = intrinsics.half_to_f32(x[0])
    y[1] = intrinsics.half_to_f32(x.vector(0))


@kernel
def dotted(y: Array[I32], sums: Array[I32], a: Array[I16], b: Array[I16], *, lanes: int) -> None:
    left, right = a.vector(0, 2 * lanes), b.vector(0, 2 * lanes)
    y[0] = intrinsics.dot_pairs(sums.vector(0, lanes), left, right)


@kernel
def quads(y: Array[I32], sums: Array[I32], a: Array[U8], b: Array[I8], *, lanes: int) -> None:
    left, right = a.vector(0, 4 * lanes), b.vector(0, 4 * lanes)
    y[0] = intrinsics.dot_quads(sums.vector(0, lanes), left, right)


@kernel
def narrow(y: Array[I16], sums: Array[I16], a: Array[U8], b: Array[I8], *, lanes: int) -> None:
    left, right = a.vector(0, 2 * lanes), b.vector(0, 2 * lanes)
    y[0] = intrinsics.dot_pairs_narrow(sums.vector(0, lanes), left, right)


@kernel
def joined(y: Array[F32], x: Array[F32], *, parts: int) -> None:
    width = 16 // parts
    y[0] = intrinsics.concatenate([x.vector(width * part, width) for part in range(parts)])


def body(name: str, *operands: np.ndarray) -> np.ndarray:
    return intrinsics.NUMPY_BODIES[getattr(intrinsics, name)](*operands)


def test_every_function_of_numbers_has_a_numpy_body() -> None:
    of_the_machine = {"NUMPY_BODIES", "cycle_counter", "pause", "prefetch"}
    of_layout = {"concatenate", "masked_load", "masked_store"}
    with_body = {function.__name__ for function in intrinsics.NUMPY_BODIES}

    assert with_body == set(intrinsics.__all__) - of_the_machine - of_layout - {"fma"}


@each_isa
@pytest.mark.parametrize("name", FLOAT_TO_FLOAT)
def test_float_functions_are_what_numpy_says(isa: Isa, name: str) -> None:
    special = [0, 1e-45, 1e-40, 1, 2, np.inf, np.nan, 3.4e38]
    x = np.array([*special, *np.random.default_rng(0).uniform(0, 9, 8)], np.float32)
    if name == "float_absolute":
        x[1::2] *= -1
    y = guarded(np.zeros(17, np.float32))

    compiled(unary, isa, name=name)(y, guarded(x))

    same_bits(y, body(name, np.concatenate([x[:1], x])))


@each_isa
@pytest.mark.parametrize("seed", range(8))
def test_rounding_goes_to_the_nearest_even_integer(isa: Isa, seed: int) -> None:
    rng = np.random.default_rng(seed)
    halves = rng.integers(-(2**21), 2**21, 8) + 0.5
    # Above 2**21 - 1 the spacing is 1/4: -4194303.75 is the last that rounds within 22 bits.
    edges = [0.5, 1.5, 2.5, -0.5, -1.5, -0.0, 2.0**22 - 0.75, 0.75 - 2.0**22]
    x = np.array([*edges, *halves], np.float32)
    y = guarded(np.zeros(17, np.int32))

    compiled(rounded, isa)(y, guarded(x))

    same_bits(y, body("round_to_int", np.concatenate([x[:1], x])))


@each_isa
def test_every_half_is_widened_exactly(isa: Isa) -> None:
    halves = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    code, y = compiled(widened, isa), np.zeros(17, np.float32)
    found = np.zeros(2**16, np.float32)
    for start in range(0, 2**16, 16):
        code(y, halves[start : start + 16])
        found[start : start + 16] = y[1:]

        assert y[0] == y[1] or np.isnan(y[:2]).all()
    same_bits(found, body("half_to_f32", halves))


@each_isa
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_multiplied_and_added_exactly(isa: Isa, lanes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-32767, 32768, 2 * lanes).astype(np.int16)
    b = rng.integers(0, 256, 2 * lanes).astype(np.int16)
    a[:4], b[:4] = 32767, 255
    sums = rng.integers(-(2**30), 2**30, lanes).astype(np.int32)
    y = guarded(np.zeros(lanes, np.int32))

    compiled(dotted, isa, lanes=lanes)(y, guarded(sums), guarded(a), guarded(b))

    same_bits(y, body("dot_pairs", sums, a, b))


@each_isa
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("most", "largest"), [(255, 63), (15, 127)])
def test_quads_are_multiplied_and_added_exactly(
    isa: Isa, lanes: int, most: int, largest: int
) -> None:
    rng = np.random.default_rng(lanes)
    a = rng.integers(0, most + 1, 4 * lanes).astype(np.uint8)
    b = rng.integers(-largest, largest + 1, 4 * lanes).astype(np.int8)
    a[:8], b[:4], b[4:8] = most, largest, -largest
    sums = rng.integers(-(2**30), 2**30, lanes).astype(np.int32)
    y = guarded(np.zeros(lanes, np.int32))

    compiled(quads, isa, lanes=lanes)(y, guarded(sums), guarded(a), guarded(b))

    same_bits(y, body("dot_quads", sums, a, b))


@each_isa
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_pairs_add_up_in_int16(isa: Isa, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    a = rng.integers(0, 16, 2 * lanes).astype(np.uint8)
    b = rng.integers(-127, 128, 2 * lanes).astype(np.int8)
    a[:4], b[:2], b[2:4] = 15, 127, -127
    most = 32767 - 2 * 15 * 127
    sums = rng.integers(-most, most + 1, lanes).astype(np.int16)
    sums[:2] = most, -most
    y = guarded(np.zeros(lanes, np.int16))

    compiled(narrow, isa, lanes=lanes)(y, guarded(sums), guarded(a), guarded(b))

    same_bits(y, body("dot_pairs_narrow", sums, a, b))


@each_isa
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_vectors_are_joined_in_order(isa: Isa, parts: int) -> None:
    x = np.arange(16, dtype=np.float32)
    y = guarded(np.zeros(16, np.float32))

    compiled(joined, isa, parts=parts)(y, guarded(x))

    same_bits(y, x)


def test_neon_multiplies_without_x86_instructions() -> None:
    text = dotted.specialise(lanes=16).show("llvm", NEON)

    assert "x86" not in text
    assert "mul" in text
