"""One pass over a block of masked tokens, which see each other and all of the text."""

from __future__ import annotations

from turbodflash_engine.drafters._block.config import BlockConfig, Convolution
from turbodflash_engine.drafters._block.context import Context
from turbodflash_engine.drafters._block.values import key_and_value, value_norm
from turbodflash_engine.drafters._words import Words
from turbodflash_engine.layers.residual import closing, scale_of
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.device import KV, Device
from turbodflash_kernels.op import Array, RmsNorm, Rope

ALL = slice(None)


class Backbone:
    """Embedding and layers. Keys and values of the block land after those of the text."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        rope: Rope,
        words: Words,
        context: Context,
    ) -> None:
        self._embed = device.bind("embed", table=words.embedding, scale=config.embedding_scale)
        self._convolved = config.convolution is not None
        self._layers = []
        for index, kv in enumerate(context.memory):
            attention = _Attention(device, tensors, config, index, kv, rope)
            self._layers.append((attention, _Mlp(device, tensors, config, index)))

    def __call__(self, tokens: Array, positions: Array, wanted: slice) -> Array:
        """i32[n] each -> the wanted rows, f32[n, width], not normed yet.

        The last layer computes no other row. Only where rows are convolved does it need them all.
        """
        x = self._embed(tokens)
        *others, (attention, mlp) = self._layers
        for attend, think in others:
            x = think(attend(x, positions))
        if self._convolved:
            return mlp(attention(x, positions))[wanted]
        return mlp(attention(x, positions, wanted))


class _Attention:
    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        index: int,
        kv: KV,
        rope: Rope,
    ) -> None:
        prefix, width = f"blk.{index}.", config.width
        inner = config.heads * config.head_dim
        shape = {"heads": config.heads, "kv_heads": config.kv_heads, "head_dim": config.head_dim}
        norm = norm_of(device, tensors, f"{prefix}attn_norm", config)
        self._conv = _conv(device, tensors, f"{prefix}attn", config, norm)
        projections = [tensors.part(f"{prefix}attn_q.weight"), *key_and_value(tensors, index)]
        self._qkv = device.bind(
            "linear",
            weight=device.pack(projections, width),
            prologue=None if self._conv else norm,
            bias=None,
        )
        self._store = device.bind(
            "rope_store",
            kv=kv,
            **shape,
            rope=rope,
            q_norm=norm_of(device, tensors, f"{prefix}attn_q_norm", config),
            k_norm=norm_of(device, tensors, f"{prefix}attn_k_norm", config),
            v_norm=value_norm(device, tensors, index, config),
        )
        sinks = f"{prefix}attn_sinks.weight"
        self._attend = device.bind(
            "attend",
            kv=kv,
            **shape,
            scale=config.scale,
            causal=config.causal,
            window=config.windows[index],
            sinks=device.upload(tensors.vector(sinks)) if sinks in tensors else None,
        )
        output = device.pack([tensors.part(f"{prefix}attn_output.weight")], inner)
        end = _norm_behind(device, tensors, f"{prefix}post_attention_norm", config)
        self._output = device.bind("linear", weight=output, prologue=None, bias=None)
        self._close = closing(device, self._output, end)

    def __call__(self, x: Array, positions: Array, wanted: slice = ALL) -> Array:
        if self._conv is None:
            return self._close(self._mixed(x, positions)[wanted], x[wanted])
        h, dynamic = self._conv.before(x)
        return self._conv.after(self._output(self._mixed(h, positions)), dynamic, x)

    def _mixed(self, x: Array, positions: Array) -> Array:
        return self._attend(self._store(self._qkv(x), positions), positions)


class _Mlp:
    def __init__(self, device: Device, tensors: Tensors, config: BlockConfig, index: int) -> None:
        prefix = f"blk.{index}.ffn"
        norm = norm_of(device, tensors, f"{prefix}_norm", config)
        self._conv = _conv(device, tensors, prefix, config, norm)
        gate_up = [tensors.part(f"{prefix}_{name}.weight") for name in ("gate", "up")]
        self._alone = device.bind(
            "feed_forward",
            gate_up=device.pack(gate_up, config.width),
            down=device.pack([tensors.part(f"{prefix}_down.weight")], config.hidden),
            prologue=None if self._conv else norm,
            activation=config.activation,
            gate_up_bias=None,
            down_bias=None,
        )
        end = _norm_behind(device, tensors, f"blk.{index}.post_ffw_norm", config)
        scale = scale_of(tensors, f"blk.{index}.layer_output_scale.weight")
        self._close = closing(device, self._alone, end, scale)

    def __call__(self, x: Array) -> Array:
        if self._conv is None:
            return self._close(x, x)
        h, dynamic = self._conv.before(x)
        return self._conv.after(self._alone(h), dynamic, x)


class _Conv:
    """DFlash2's convolutions before and after a branch, over the rows of the block alone."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        prefix: str,
        norm: RmsNorm,
        width: int,
        shape: Convolution,
    ) -> None:
        self._norm = device.bind("join", norms=(norm,))
        weight = device.pack([tensors.part(f"{prefix}_conv_proj.weight")], width)
        self._dynamic = device.bind("linear", weight=weight, prologue=None, bias=None)
        sides = tensors.vector(f"{prefix}_conv_base").reshape(2, shape.taps, width)
        self._before, self._after = (
            device.bind("tap_conv", base=device.upload(base), group=shape.group) for base in sides
        )
        self._half = shape.taps * (width // shape.group)

    def before(self, x: Array) -> tuple[Array, Array]:
        """What enters the branch, and taps made from the normed input, for both sides."""
        h = self._norm(x)
        dynamic = self._dynamic(h)
        return self._before(h, dynamic[:, : self._half]), dynamic

    def after(self, y: Array, dynamic: Array, residual: Array) -> Array:
        return self._after(y, dynamic[:, self._half :], residual)


def norm_of(device: Device, tensors: Tensors, name: str, config: BlockConfig) -> RmsNorm:
    return RmsNorm(device.upload(tensors.vector(f"{name}.weight")), config.eps)


def _norm_behind(
    device: Device, tensors: Tensors, name: str, config: BlockConfig
) -> RmsNorm | None:
    return norm_of(device, tensors, name, config) if f"{name}.weight" in tensors else None


def _conv(
    device: Device, tensors: Tensors, prefix: str, config: BlockConfig, norm: RmsNorm
) -> _Conv | None:
    if config.convolution is None:
        return None
    return _Conv(device, tensors, prefix, norm, config.width, config.convolution)
