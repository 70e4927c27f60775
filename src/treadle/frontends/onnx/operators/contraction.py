"""Matrix products, Einstein summation and dense linear algebra."""

from __future__ import annotations

from ....declare.opdef import REGISTRY, cast_value, wide
from ....errors import Declined, OperatorError
from ....ir.graph import Value
from ....ir.types import F32, I32, broadcast, shape_text
from ....ops.contract import matmul as product
from ....ops.contract import matmul_integer, swap_last
from ....ops.einsum import einsum as contract
from ....ops.linalg import det as determinant
from ....ops.linalg import inverse
from ....ops.movement import transpose, unsqueeze
from ....ops.quantize import dynamic_quantize_linear
from ..context import Context
from ..registry import MICROSOFT, importer


@importer("MatMul")
def matmul(ctx: Context, a: Value, b: Value) -> Value:
    """As numpy.matmul."""
    return product(a, b)


@importer("Einsum")
def einsum(ctx: Context, *xs: Value, equation: str) -> Value:
    """Einstein summation."""
    return contract(list(xs), equation=equation)


@importer("Det")
def det(ctx: Context, x: Value) -> Value:
    """Determinants of the last two axes."""
    return determinant(x)


@importer("Inverse", domain=MICROSOFT)
def inverse_(ctx: Context, x: Value) -> Value:
    """Inverses of the last two axes."""
    return inverse(x)


def _times(x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if x.dtype.sort == "float":
        return x * factor
    if not factor.is_integer():
        raise Declined(f"{x.dtype} matrices times {factor}", hint="cast the operands to f32")
    return x * int(factor)


def _gemm(a: Value, b: Value, c: Value | None, alpha: float, beta: float, trans_a: int,
          trans_b: int) -> Value:
    """alpha a b + beta c, in f32 for halves."""
    left = swap_last(a) if trans_a else a
    right = swap_last(b) if trans_b else b
    y = _times(product(wide(left), wide(right)), alpha)
    if c is None or beta == 0.0:
        return y
    if broadcast([y.shape, c.shape]) != y.shape:
        raise OperatorError(f"C {shape_text(c.shape)} does not broadcast to "
                            f"{shape_text(y.shape)}")
    return y + _times(wide(c), beta)


@importer("Gemm")
def gemm(ctx: Context, a: Value, b: Value, c: Value | None, *, alpha: float = 1.0,
         beta: float = 1.0, transA: int = 0, transB: int = 0, broadcast: int = 0) -> Value:  # noqa: N803 - ONNX names
    """A scaled product plus a scaled matrix; `broadcast` of opset 6 allows what later ones do."""
    return cast_value(_gemm(a, b, c, alpha, beta, transA, transB), a.dtype)


_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus",
          "Softsign": "softsign"}
_PARAMETERS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]] = {
    "LeakyRelu": ("leaky_relu", ("alpha",), (0.01,)), "Elu": ("elu", ("alpha",), (1.0,)),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta"), (0.2, 0.5)),
    "ThresholdedRelu": ("thresholded_relu", ("alpha",), (1.0,)),
    "Selu": ("selu", ("alpha", "gamma"), (1.6732632, 1.050701))}


def activated(y: Value, name: str, given: tuple[float | None, ...]) -> Value:
    """The activation that a fused node names, with its parameters in order."""
    if name in _PLAIN:
        out = REGISTRY[_PLAIN[name]](y)
    elif name in _PARAMETERS:
        op, names, defaults = _PARAMETERS[name]
        values = [d if g is None else g for d, g in zip(defaults, given, strict=False)]
        out = REGISTRY[op](y, **dict(zip(names, values, strict=True)))
    else:
        raise Declined(f"the fused activation {name!r}")
    assert isinstance(out, Value)
    return out


@importer("FusedGemm", domain=MICROSOFT)
def fused_gemm(ctx: Context, a: Value, b: Value, c: Value | None, *, alpha: float = 1.0,
               beta: float = 1.0, transA: int = 0, transB: int = 0, activation: str = "",  # noqa: N803 - ONNX names
               activation_alpha: float | None = None, activation_beta: float | None = None,
               activation_gamma: float | None = None) -> Value:
    """Gemm and an activation."""
    y = _gemm(a, b, c, alpha, beta, transA, transB)
    if activation:
        second = activation_gamma if activation == "Selu" else activation_beta
        y = activated(y, activation, (activation_alpha, second))
    return cast_value(y, a.dtype)


def _batch_last(x: Value) -> Value:
    """The first axis moved behind the batch axes."""
    n = x.type.rank
    return transpose(x, perm=(*range(1, n - 1), 0, n - 1))


def _fused(a: Value, b: Value, alpha: float, trans: tuple[int, int], batch: tuple[int, int]
           ) -> Value:
    left, right = (_batch_last(x) if t else x for x, t in zip((a, b), batch, strict=True))
    left, right = (swap_last(x) if t and x.type.rank > 1 else x
                   for x, t in zip((left, right), trans, strict=True))
    if alpha == 1.0:
        return product(left, right)
    return cast_value(product(wide(left), wide(right)) * alpha, a.dtype)


@importer("FusedMatMul", domain=MICROSOFT)
def fused_matmul(ctx: Context, a: Value, b: Value, *, alpha: float = 1.0, transA: int = 0,  # noqa: N803 - ONNX names
                 transB: int = 0, transBatchA: int = 0, transBatchB: int = 0) -> Value:  # noqa: N803 - ONNX names
    """A scaled product of transposed operands."""
    return _fused(a, b, alpha, (transA, transB), (transBatchA, transBatchB))


@importer("TransposeMatMul", domain=MICROSOFT)
def transpose_matmul(ctx: Context, a: Value, b: Value, *, alpha: float = 1.0, transA: int = 0,  # noqa: N803 - ONNX names
                     transB: int = 0) -> Value:  # noqa: N803 - ONNX names
    """The older name of FusedMatMul."""
    return _fused(a, b, alpha, (transA, transB), (0, 0))


@importer("MatMulInteger")
def matmul_integer_(ctx: Context, a: Value, b: Value, a_zero: Value | None,
                    b_zero: Value | None) -> Value:
    """An exact product of 8-bit matrices."""
    return matmul_integer(a, b, a_zero=a_zero, b_zero=b_zero)


def scaled_product(a: Value, b: Value, scales: tuple[Value, Value],
                   zeros: tuple[Value | None, Value | None], bias: Value | None) -> Value:
    """(a - a_zero) (b - b_zero) in i32, times both scales; one of a's scales is for a row."""
    acc = matmul_integer(a, b, a_zero=zeros[0], b_zero=zeros[1])
    left, right = scales
    if left.type.rank == 1 and left.shape != (1,) and a.type.rank > 1:
        left = unsqueeze(left, axes=(1,))
    by = wide(left) * wide(right)
    y = cast_value(acc, F32) * by
    return cast_value(y if bias is None else y + wide(bias), scales[1].dtype)


@importer("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(ctx: Context, a: Value, b: Value, a_scale: Value, b_scale: Value,
                            a_zero: Value | None, b_zero: Value | None, bias: Value | None
                            ) -> Value:
    """The product of two quantised matrices as floats."""
    return scaled_product(a, b, (a_scale, b_scale), (a_zero, b_zero), bias)


@importer("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(ctx: Context, a: Value, b: Value, b_scale: Value,
                            b_zero: Value | None, bias: Value | None) -> Value:
    """`a` is quantised over its own range first."""
    q, scale, zero = dynamic_quantize_linear(a)
    return scaled_product(q, b, (scale, b_scale), (zero, b_zero), bias)


@importer("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(ctx: Context, a: Value, b: Value) -> Value:
    """An exact product of 16-bit matrices."""
    return product(cast_value(a, I32), cast_value(b, I32))


