"""The inner loop of a matrix product: sixteen weight rows times a few activation rows.

Written as Python that emits LLVM IR, because its unrolling depends on the weight format, on the
number of activation rows and on the instruction set. For each block of 32 inputs it takes exact
integer dot products, then two float steps a row, in the order of the blocks: a row's result has the
same bits whatever rows are computed beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from turbodflash_kernels._cpu import layout
from turbodflash_kernels._cpu.simd import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    V_F32,
    V_I32,
    call,
    constant_splat,
    emit_prefetch,
    fma,
    load,
    splat,
    store,
)
from turbodflash_kernels.planar import SUPER_BLOCK, Format

V_I8 = ir.VectorType(I8, 64)
HALF_I8, HALF_I16, HALF_I32 = (
    ir.VectorType(I8, 32),
    ir.VectorType(I16, 16),
    ir.VectorType(I32, 8),
)
Builder = ir.IRBuilder

# With few rows the weights come from memory, at a pace that the processor's own prefetching does
# not reach; with many they are in a cache.
PREFETCH_ROWS = 2
AHEAD = 1024
Values = list[Any]


def repeat(builder: Builder, count: ir.Value, body: Callable[[ir.Value], None]) -> None:
    """Emit `for i in range(count): body(i)`; count is an i64 of at least one."""
    before = builder.block
    inside = builder.append_basic_block()
    after = builder.append_basic_block()
    builder.branch(inside)
    builder.position_at_end(inside)
    index = builder.phi(I64)
    index.add_incoming(I64(0), before)
    body(index)
    following = builder.add(index, I64(1))
    index.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)


def offset(builder: Builder, base: ir.Value, index: ir.Value, size: int) -> ir.Value:
    return builder.add(base, builder.mul(index, I64(size)))


def plus(builder: Builder, base: ir.Value, size: int) -> ir.Value:
    return builder.add(base, I64(size))


def pinned(builder: Builder, values: Values) -> Values:
    """The same vectors, in x86 registers at this point of the program, loads kept on their side.

    Without it the compiler first finishes one half of all sums, and spills what the other needs.
    """
    count = len(values)
    types_ = [value.type for value in values]
    kind = ir.FunctionType(ir.LiteralStructType(types_), types_)
    constraint = ",".join(["=x"] * count + [str(i) for i in range(count)] + ["~{memory}"])
    result = builder.asm(kind, "", constraint, values, side_effect=True)
    return [builder.extract_value(result, i) for i in range(count)]


# -- codes ---------------------------------------------------------------------------------------------


def step_codes(builder: Builder, fmt: Format, planes: ir.Value, step: int) -> ir.Value:
    """The 64 codes of one step as unsigned bytes, from a block's bit planes."""
    codes, at, low = None, 0, 0
    for bits in layout.PLANES[fmt.bits]:
        vector = load(builder, plus(builder, planes, at + 64 * (step % bits)), V_I8)
        part = _field(builder, vector, bits, bits * (step // bits) - low, low)
        codes = part if codes is None else builder.or_(codes, part)
        at, low = at + 64 * bits, low + bits
    assert codes is not None
    return codes


def _field(builder: Builder, vector: ir.Value, bits: int, right: int, low: int) -> ir.Value:
    """(vector >> right) & (ones << low), byte by byte; the shift runs on wider lanes."""
    if bits == 8:
        return vector
    wide = ir.VectorType(I16, 32)
    shifted = builder.bitcast(vector, wide)
    if right > 0:
        shifted = builder.lshr(shifted, constant_splat(right, wide))
    elif right < 0:
        shifted = builder.shl(shifted, constant_splat(-right, wide))
    mask = constant_splat(((1 << bits) - 1) << low, V_I8)
    return builder.and_(builder.bitcast(shifted, V_I8), mask)


def halves(builder: Builder, vector: ir.Value) -> tuple[ir.Value, ir.Value]:
    def take(first: int) -> ir.Value:
        lanes = ir.Constant(ir.VectorType(I32, 32), list(range(first, first + 32)))
        return builder.shuffle_vector(vector, vector, lanes)

    return take(0), take(32)


def joined(builder: Builder, low: ir.Value, high: ir.Value) -> ir.Value:
    return builder.shuffle_vector(low, high, ir.Constant(V_I32, list(range(16))))


def look_up(builder: Builder, isa: str, table: tuple[int, ...], codes: ir.Value) -> ir.Value:
    """table[code] + 128 as unsigned bytes."""
    values = [v + 128 for v in table]
    if isa == "avx512_vnni":
        entries = ir.Constant(V_I8, values * 4)
        return call(builder, "llvm.x86.avx512.pshuf.b.512", V_I8, entries, codes)
    if isa in ("avx2", "avx_vnni"):
        entries = ir.Constant(HALF_I8, values * 2)
        low, high = (
            call(builder, "llvm.x86.avx2.pshuf.b", HALF_I8, entries, part)
            for part in halves(builder, codes)
        )
        return builder.shuffle_vector(
            low, high, ir.Constant(ir.VectorType(I32, 64), list(range(64)))
        )
    return _select_tree(builder, values, codes, bit=3)


def _select_tree(builder: Builder, values: list[int], codes: ir.Value, bit: int) -> ir.Value:
    if bit < 0:
        return constant_splat(values[0], V_I8)
    half = len(values) // 2
    one = builder.and_(codes, constant_splat(1 << bit, V_I8))
    is_set = builder.icmp_unsigned("!=", one, ir.Constant(V_I8, None))
    return builder.select(
        is_set,
        _select_tree(builder, values[half:], codes, bit - 1),
        _select_tree(builder, values[:half], codes, bit - 1),
    )


# -- integer dot products of one block -------------------------------------------------------------------


class Dots:
    """Sums of code * activation over consecutive steps, [rows] of <16 x i32>, by instruction set."""

    def __init__(self, builder: Builder, fmt: Format, isa: str, rows: int) -> None:
        self.builder, self.fmt, self.isa, self.rows = builder, fmt, isa, rows
        self.wide_codes = bool(fmt.table) or fmt.bits == 8
        # true when the result is the sum of (code - zero) already
        self.signed = isa == "avx2" and self.wide_codes

    def codes(self, planes: ir.Value, step: int) -> ir.Value:
        codes = step_codes(self.builder, self.fmt, planes, step)
        if self.fmt.table:
            return look_up(self.builder, self.isa, self.fmt.table, codes)
        return codes

    def run(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        """activations: address of the block's int8 inputs, per row."""
        if self.isa == "avx2":
            method = self._avx2_signed if self.signed else self._avx2_small
        else:
            method = {
                "avx512_vnni": self._vnni_512,
                "avx_vnni": self._vnni_256,
                "generic": self._generic,
            }[self.isa]
        return method(planes, activations, steps)

    def _four(self, activations: ir.Value, step: int, lanes: int, vector: ir.Type) -> ir.Value:
        """Inputs 4 * step .. + 3, repeated for every weight row."""
        word = load(self.builder, plus(self.builder, activations, 4 * step), I32)
        return self.builder.bitcast(splat(self.builder, word, lanes), vector)

    def _vnni_512(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        sums: Values = [ir.Constant(V_I32, None)] * self.rows
        for step in steps:
            codes = self.codes(planes, step)
            for r, row in enumerate(activations):
                four = self._four(row, step, 16, V_I8)
                sums[r] = vnni(self.builder, 512, sums[r], codes, four)
        return sums

    def _vnni_256(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        sums: list[Values] = [[ir.Constant(HALF_I32, None)] * 2 for _ in activations]
        for step in steps:
            parts = halves(self.builder, self.codes(planes, step))
            for r, row in enumerate(activations):
                four = self._four(row, step, 8, HALF_I8)
                for h in (0, 1):
                    sums[r][h] = vnni(self.builder, 256, sums[r][h], parts[h], four)
        return [joined(self.builder, *pair) for pair in sums]

    def _avx2_small(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        """Codes of at most 6 bits: several products fit 16 bits before they must be widened."""
        fitting = 32767 // (((1 << self.fmt.bits) - 1) * 254)
        sums: list[Values] = [[None, None] for _ in activations]
        for first in range(steps.start, steps.stop, fitting):
            narrow: list[Values] = [[None, None] for _ in activations]
            for step in range(first, min(first + fitting, steps.stop)):
                parts = halves(self.builder, self.codes(planes, step))
                for r, row in enumerate(activations):
                    four = self._four(row, step, 8, HALF_I8)
                    for h in (0, 1):
                        pairs = self._pairs(parts[h], four)
                        narrow[r][h] = self._added(narrow[r][h], pairs)
                narrow = self._pinned(narrow)
            for r in range(self.rows):
                for h in (0, 1):
                    sums[r][h] = self._added(sums[r][h], self._widened(narrow[r][h]))
        return [joined(self.builder, *pair) for pair in sums]

    def _avx2_signed(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        """Codes of 8 bits: |code| times the activation with the code's sign."""
        sums: list[Values] = [[None, None] for _ in activations]
        flip = constant_splat(-128, HALF_I8)
        for step in steps:
            parts = halves(self.builder, self.codes(planes, step))
            signed = [self.builder.xor(part, flip) for part in parts]
            size = [
                call(self.builder, "llvm.abs.v32i8", HALF_I8, s, ir.IntType(1)(0)) for s in signed
            ]
            for r, row in enumerate(activations):
                four = self._four(row, step, 8, HALF_I8)
                for h in (0, 1):
                    turned = call(self.builder, "llvm.x86.avx2.psign.b", HALF_I8, four, signed[h])
                    wide = self._widened(self._pairs(size[h], turned))
                    sums[r][h] = self._added(sums[r][h], wide)
            sums = self._pinned(sums)
        return [joined(self.builder, *pair) for pair in sums]

    def _pinned(self, sums: list[Values]) -> list[Values]:
        flat = pinned(self.builder, [half for pair in sums for half in pair])
        return [flat[i : i + 2] for i in range(0, len(flat), 2)]

    def _pairs(self, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
        return call(self.builder, "llvm.x86.avx2.pmadd.ub.sw", HALF_I16, unsigned, signed)

    def _widened(self, narrow: ir.Value) -> ir.Value:
        ones = constant_splat(1, HALF_I16)
        return call(self.builder, "llvm.x86.avx2.pmadd.wd", HALF_I32, narrow, ones)

    def _added(self, total: ir.Value | None, more: ir.Value) -> ir.Value:
        return more if total is None else self.builder.add(total, more)

    def _generic(self, planes: ir.Value, activations: Values, steps: range) -> Values:
        builder, low_byte = self.builder, constant_splat(255, V_I32)
        sums: Values = [ir.Constant(V_I32, None)] * self.rows
        for step in steps:
            words = builder.bitcast(self.codes(planes, step), V_I32)
            for j in range(4):
                column = builder.and_(builder.lshr(words, constant_splat(8 * j, V_I32)), low_byte)
                for r, row in enumerate(activations):
                    input_ = builder.sext(load(builder, plus(builder, row, 4 * step + j), I8), I32)
                    sums[r] = builder.add(sums[r], builder.mul(column, splat(builder, input_)))
        return sums


def vnni(
    builder: Builder, width: int, total: ir.Value, codes: ir.Value, inputs: ir.Value
) -> ir.Value:
    """vpdpbusd; LLVM before 22 types its operands as 32-bit lanes."""
    import llvmlite.binding as llvm

    words = ir.VectorType(I32, width // 32)
    if llvm.llvm_version_info[0] < 22:
        codes, inputs = builder.bitcast(codes, words), builder.bitcast(inputs, words)
    return call(builder, f"llvm.x86.avx512.vpdpbusd.{width}", words, total, codes, inputs)


# -- tiles -----------------------------------------------------------------------------------------------


def _tile(name: str, arguments: int, emit: Callable[[Builder, Values], None]) -> Any:
    """An intrinsic of `arguments` int64 values that returns nothing."""
    namespace: dict[str, Any] = {"build": None}
    parameters = ", ".join(f"a{i}" for i in range(arguments))
    exec(f"def {name}(typing_context, {parameters}): return build()", namespace)

    def build() -> Any:
        def codegen(context: Any, builder: Builder, sig: Any, args: Values) -> ir.Value:
            emit(builder, args)
            return context.get_dummy_value()

        return signature(types.void, *[types.int64] * arguments), codegen

    namespace["build"] = build
    return intrinsic(namespace[name])


def _accumulators(builder: Builder, rows: int) -> Values:
    accumulators = []
    for _ in range(rows):
        with builder.goto_entry_block():
            slot = builder.alloca(V_F32)
        builder.store(ir.Constant(V_F32, None), slot)
        accumulators.append(slot)
    return accumulators


def _row_addresses(builder: Builder, base: ir.Value, stride: ir.Value, rows: int) -> Values:
    return [builder.add(base, builder.mul(stride, I64(r))) for r in range(rows)]


def quantised_tile(fmt: Format, isa: str, rows: int) -> Any:
    """tile(weights, codes, code_stride, scales, sums, stride, halves, blocks, out, out_stride).

    One tile of sixteen weight rows times `rows` activation rows over all blocks. Activations:
    int8 codes [rows, code_stride]; float32 scales and sums (scale * sum of codes) per 32 inputs,
    `stride` bytes a row; int32 sums of codes per 16 inputs, 2 * stride bytes a row. The sixteen
    results of each row go to out + row * out_stride.
    """

    def emit(builder: Builder, args: Values) -> None:
        weights, codes, code_stride, scales, sums, stride, halves_, blocks, out, out_stride = args
        state = _QuantisedTile(builder, fmt, isa, rows)
        state.code_rows = _row_addresses(builder, codes, code_stride, rows)
        state.scale_rows = _row_addresses(builder, scales, stride, rows)
        state.sum_rows = _row_addresses(builder, sums, stride, rows)
        double = builder.shl(stride, I64(1))
        state.half_rows = _row_addresses(builder, halves_, double, rows)
        state.loop(weights, blocks)
        for total, address in zip(
            state.totals, _row_addresses(builder, out, out_stride, rows), strict=True
        ):
            store(builder, builder.load(total, typ=V_F32), address)

    return _tile(f"tile_{layout.spec_name(fmt)}_{isa}_{rows}", 10, emit)


class _QuantisedTile:
    code_rows: Values
    scale_rows: Values
    sum_rows: Values
    half_rows: Values

    def __init__(self, builder: Builder, fmt: Format, isa: str, rows: int) -> None:
        self.builder, self.fmt, self.rows = builder, fmt, rows
        self.dots = Dots(builder, fmt, isa, rows)
        self.totals = _accumulators(builder, rows)
        self.zero = 128 if fmt.table else fmt.zero

    def loop(self, weights: ir.Value, blocks: ir.Value) -> None:
        builder, size = self.builder, layout.block_bytes(self.fmt)
        if not self.fmt.two_level:
            repeat(builder, blocks, lambda b: self.block(offset(builder, weights, b, size), b, ()))
            return
        per_super = SUPER_BLOCK // layout.BLOCK
        header = layout.header_bytes(self.fmt)

        def super_block(i: ir.Value) -> None:
            base = offset(builder, weights, i, header + per_super * size)
            above = tuple(
                self.half_lanes(plus(builder, base, 32 * j))
                for j in range(2 if self.fmt.affine else 1)
            )
            first = builder.mul(i, I64(per_super))

            def inner(j: ir.Value) -> None:
                at = offset(builder, plus(builder, base, header), j, size)
                self.block(at, builder.add(first, j), above)

            repeat(builder, I64(per_super), inner)

        repeat(builder, builder.lshr(blocks, I64(3)), super_block)

    def half_lanes(self, address: ir.Value) -> ir.Value:
        half = load(self.builder, address, ir.VectorType(F16, 16))
        return self.builder.fpext(half, V_F32)

    def factor(self, address: ir.Value, above: ir.Value | None) -> ir.Value:
        """Sixteen block scales or minima as float32."""
        if above is None:
            return self.half_lanes(address)
        small = load(self.builder, address, ir.VectorType(I8, 16))
        wide = self.builder.sitofp(self.builder.sext(small, V_I32), V_F32)
        return self.builder.fmul(above, wide)

    def block(self, address: ir.Value, index: ir.Value, above: tuple[ir.Value, ...]) -> None:
        builder, fmt = self.builder, self.fmt
        rows = [offset(builder, row, index, layout.BLOCK) for row in self.code_rows]
        if self.rows <= PREFETCH_ROWS:
            for line in range(0, layout.block_bytes(fmt), 64):
                emit_prefetch(builder, plus(builder, address, AHEAD + line))
        parts = layout.BLOCK // fmt.block
        size = layout.factor_bytes(fmt)
        at = layout.code_bytes(fmt)
        for part in range(parts):
            steps = range(part * layout.STEPS // parts, (part + 1) * layout.STEPS // parts)
            sums = self.dots.run(address, rows, steps)
            scale = self.factor(plus(builder, address, at + part * size), above[0] if above else None)
            minimum = None
            if fmt.affine:
                where = plus(builder, address, at + (parts + part) * size)
                minimum = self.factor(where, above[1] if above else None)
            for r in range(self.rows):
                self.accumulate(r, index, part, parts, sums[r], scale, minimum)

    def accumulate(
        self,
        r: int,
        index: ir.Value,
        part: int,
        parts: int,
        sums: ir.Value,
        scale: ir.Value,
        minimum: ir.Value | None,
    ) -> None:
        builder = self.builder
        if self.zero and not self.dots.signed:
            sums = builder.sub(sums, self.zero_term(r, index, part, parts))
        step = splat(builder, load(builder, offset(builder, self.scale_rows[r], index, 4), F32))
        total = builder.load(self.totals[r], typ=V_F32)
        scaled = builder.fmul(builder.sitofp(sums, V_F32), step)
        total = fma(builder, scaled, scale, total)
        if minimum is not None:
            total = fma(builder, minimum, self.sum_term(r, index, part, parts, step), total)
        builder.store(total, self.totals[r])

    def half_sum(self, r: int, index: ir.Value, part: int) -> ir.Value:
        at = plus(self.builder, offset(self.builder, self.half_rows[r], index, 8), 4 * part)
        return load(self.builder, at, I32)

    def zero_term(self, r: int, index: ir.Value, part: int, parts: int) -> ir.Value:
        """zero * (sum of the activations' codes), to be taken from the sum of products."""
        builder = self.builder
        total = self.half_sum(r, index, part)
        if parts == 1:
            total = builder.add(total, self.half_sum(r, index, 1))
        return splat(builder, builder.mul(total, I32(self.zero)))

    def sum_term(
        self, r: int, index: ir.Value, part: int, parts: int, step: ir.Value
    ) -> ir.Value:
        """The activations' sum over the block, as float."""
        builder = self.builder
        if parts == 1:
            at = offset(builder, self.sum_rows[r], index, 4)
            return splat(builder, load(builder, at, F32))
        codes = splat(builder, self.half_sum(r, index, part))
        return builder.fmul(builder.sitofp(codes, V_F32), step)


def dense_tile(kind: str, rows: int) -> Any:
    """tile(weights, x, stride, blocks, rest, out, out_stride) over float32 activations.

    The sum runs over blocks of 32 inputs, each summed from zero, then the `rest` inputs that fill
    no block; `stride` is in bytes.
    """

    def emit(builder: Builder, args: Values) -> None:
        weights, x, stride, blocks, rest, out, out_stride = args
        totals, block_sums = _accumulators(builder, rows), _accumulators(builder, rows)
        x_rows = _row_addresses(builder, x, stride, rows)
        width = layout.TILE * layout.DENSE_BYTES[kind]

        def add_inputs(first: ir.Value, count: ir.Value) -> None:
            for slot in block_sums:
                builder.store(ir.Constant(V_F32, None), slot)

            def one_input(j: ir.Value) -> None:
                k = builder.add(first, j)
                lanes = _dense_lanes(builder, kind, offset(builder, weights, k, width))
                for row, slot in zip(x_rows, block_sums, strict=True):
                    value = splat(builder, load(builder, offset(builder, row, k, 4), F32))
                    so_far = builder.load(slot, typ=V_F32)
                    builder.store(fma(builder, lanes, value, so_far), slot)

            repeat(builder, count, one_input)
            for slot, total in zip(block_sums, totals, strict=True):
                both = builder.fadd(builder.load(total, typ=V_F32), builder.load(slot, typ=V_F32))
                builder.store(both, total)

        def when(condition: ir.Value, body: Callable[[], None]) -> None:
            with builder.if_then(condition):
                body()

        def all_blocks() -> None:
            repeat(
                builder, blocks, lambda b: add_inputs(builder.shl(b, I64(5)), I64(layout.BLOCK))
            )

        when(builder.icmp_signed(">", blocks, I64(0)), all_blocks)
        when(
            builder.icmp_signed(">", rest, I64(0)),
            lambda: add_inputs(builder.shl(blocks, I64(5)), rest),
        )
        for total, address in zip(
            totals, _row_addresses(builder, out, out_stride, rows), strict=True
        ):
            store(builder, builder.load(total, typ=V_F32), address)

    return _tile(f"tile_{kind}_{rows}", 7, emit)


def _dense_lanes(builder: Builder, kind: str, address: ir.Value) -> ir.Value:
    if kind == "f32":
        return load(builder, address, V_F32)
    if kind == "f16":
        return builder.fpext(load(builder, address, ir.VectorType(F16, 16)), V_F32)
    upper = builder.zext(load(builder, address, ir.VectorType(I16, 16)), V_I32)
    return builder.bitcast(builder.shl(upper, constant_splat(16, V_I32)), V_F32)
