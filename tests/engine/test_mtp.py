"""MTP: drafts are those of an independent forward pass, and change no bit of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.spec_runs import draft_for, read_prompt, take_step
from tests.engine.test_lossless import Bench, NoDrafter
from tests.engine.tiny_models import Made, build, golden, made, path_of, tensors_of
from turbodflash_engine.drafters._base import Setting
from turbodflash_engine.drafters.mtp import PLUGIN, Mtp
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import Info, Tensors
from turbodflash_engine.loading import load
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import CachePlan, Model
from turbodflash_engine.options import LoadOptions, SampleOptions, SpecOptions
from turbodflash_engine.quant import weight_type
from turbodflash_kernels.device import Device, open_device

Floats = NDArray[np.float64]
TARGETS = ("qwen35", "qwen35moe")
WIDTH, EPS, BLOCK = 64, 1e-6, 8


def rows_of(info: Info) -> NDArray[np.float32]:
    return info.data.view("<f4").reshape(info.shape[::-1])


@cache
def with_block(name: str, *tables: str) -> tuple[Metadata, Mapping[str, Info]]:
    """A tiny model with a block behind it, random beside the tables it may have of its own."""
    metadata, infos = tensors_of(name)
    arch, rng = metadata.architecture, np.random.default_rng(5)
    values = dict(metadata.items()) | {
        f"{arch}.block_count": BLOCK + 1,
        f"{arch}.nextn_predict_layers": 1,
    }

    def random(*shape: int) -> NDArray[np.float32]:
        spread = 0.1 if len(shape) == 1 else shape[-1] ** -0.5
        return (rng.standard_normal(shape) * spread + (len(shape) == 1)).astype(np.float32)

    shapes = {
        key.replace("blk.7.", f"blk.{BLOCK}."): info.shape[::-1]
        for key, info in infos.items()
        if key.startswith("blk.7.")
    }
    prefix = f"blk.{BLOCK}.nextn."
    shapes |= {f"{prefix}eh_proj.weight": (WIDTH, 2 * WIDTH)}
    shapes |= {f"{prefix}{each}.weight": (WIDTH,) for each in ("enorm", "hnorm")}
    own = {"shared_head_norm": (WIDTH,), "embed_tokens": (512, WIDTH)}
    own["shared_head_head"] = (512, WIDTH)
    shapes |= {f"{prefix}{each}.weight": own[each] for each in tables}
    block = {key: _made(key, random(*shape)) for key, shape in shapes.items()}
    return Metadata(values, "some.gguf"), {**infos, **block}


def _made(name: str, values: NDArray[np.float32]) -> Made:
    """Of any number of dimensions: experts have three."""
    flat = made(name, values.reshape(-1, values.shape[-1]) if values.ndim > 2 else values)
    return Made(name, "F32", values.shape[::-1], flat.data)


def pair_of(
    name: str, device: Device, *tables: str, **options: Any
) -> tuple[Model, Mtp, Mapping[str, Info]]:
    metadata, infos = with_block(name, *tables)
    model = build(metadata, infos, device)
    config = PLUGIN.read(metadata)
    assert PLUGIN.within is not None
    own = {key: infos[key] for key in PLUGIN.within(metadata, infos)}
    spec = SpecOptions(**options)
    PLUGIN.check(config, model.shared, spec)
    tensors = Tensors(own, "some.gguf", lambda info: weight_type(info.type, info.name))
    tensors.check(PLUGIN.layout(config, tensors))
    setting = Setting(device, model.shared, CachePlan(256, "f32", "f32"), spec)
    drafter = PLUGIN.build(config, tensors, setting)
    assert isinstance(drafter, Mtp)
    return model, drafter, infos


# --- the forward pass once more, in float64 -------------------------------------------------------


class Plain:
    """The block in plain numpy, from the file's tensors alone."""

    def __init__(self, infos: Mapping[str, Info], experts: bool) -> None:
        self._w = {
            key.removeprefix(f"blk.{BLOCK}."): rows_of(info).astype(np.float64)
            for key, info in infos.items()
            if key.startswith((f"blk.{BLOCK}.", "token_embd", "output"))
        }
        self._experts = experts

    def __call__(self, tokens: Sequence[int], features: Floats) -> tuple[Floats, Floats]:
        """Tokens 1, 2, ... and features 0, 1, ... -> what follows the last: feature, logits."""
        w = self._w
        table = w.get("nextn.embed_tokens.weight", w["token_embd.weight"])
        embedded = rms(table[list(tokens)], w["nextn.enorm.weight"])
        pairs = np.concatenate([embedded, rms(features, w["nextn.hnorm.weight"])], axis=1)
        x = pairs @ w["nextn.eh_proj.weight"].T
        x = x + self._attention(rms(x, w["attn_norm.weight"]))
        x = x + self._ffn(rms(x, w["post_attention_norm.weight"]))
        last = w.get("nextn.shared_head_norm.weight", w["output_norm.weight"])
        head = w.get("nextn.shared_head_head.weight", w["output.weight"])
        feature = rms(x[-1:], last)
        return feature, feature @ head.T

    def normed(self, residual: Floats) -> Floats:
        """A row that leaves the trunk as a feature."""
        return rms(residual, self._w["output_norm.weight"])

    def _attention(self, h: Floats) -> Floats:
        w, n, heads, kv_heads, dim = self._w, len(h), 4, 2, 32
        q, gate = np.split((h @ w["attn_q.weight"].T).reshape(n, heads, 2 * dim), 2, axis=2)
        k, v = ((h @ w[f"attn_{side}.weight"].T).reshape(n, kv_heads, dim) for side in "kv")
        q, k = rms(q, w["attn_q_norm.weight"]), rms(k, w["attn_k_norm.weight"])
        q, k = turned(q), turned(k)
        of = np.arange(heads) // (heads // kv_heads)
        scores = np.einsum("ihd,jhd->hij", q, k[:, of]) / np.sqrt(dim)
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        found = np.einsum("hij,jhd->ihd", weights, v[:, of]) * sigmoid(gate)
        return found.reshape(n, -1) @ w["attn_output.weight"].T

    def _ffn(self, h: Floats) -> Floats:
        w = self._w
        if not self._experts:
            return mlp(h, *(w[f"ffn_{each}.weight"] for each in ("gate", "up", "down")))
        names = ("gate", "up", "down")
        scores = h @ w["ffn_gate_inp.weight"].T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        out = np.zeros_like(h)
        for row, chances in enumerate(p):
            chosen = np.argsort(-chances, kind="stable")[:2]
            for expert in chosen:
                share = chances[expert] / chances[chosen].sum()
                matrices = (w[f"ffn_{each}_exps.weight"][expert] for each in names)
                out[row] += share * mlp(h[row : row + 1], *matrices)[0]
        shared = mlp(h, *(w[f"ffn_{each}_shexp.weight"] for each in names))
        return out + sigmoid(h @ w["ffn_gate_inp_shexp.weight"].reshape(-1, 1)) * shared


def rms(x: Floats, weight: Floats) -> Floats:
    found: Floats = x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + EPS) * weight
    return found


def sigmoid(x: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-x))
    return found


def mlp(x: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    inner = x @ gate.T
    found: Floats = (inner * sigmoid(inner) * (x @ up.T)) @ down.T
    return found


def turned(x: Floats, n_rot: int = 16, base: float = 1e7) -> Floats:
    angle = np.arange(len(x))[:, None, None] * base ** -(np.arange(0, n_rot, 2) / n_rot)
    a, b, rest = np.split(x, [n_rot // 2, n_rot], axis=2)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos, rest], axis=2)


def drafted(plain: Plain, text: Sequence[int], residual: Floats, count: int) -> list[Floats]:
    """The logits of each drafted token, one after the other; greedy."""
    tokens, features = list(text[1:]), plain.normed(residual)
    rows = []
    for _ in range(count):
        feature, logits = plain(tokens, features)
        rows.append(logits[0])
        tokens.append(int(logits[0].argmax()))
        features = np.concatenate([features, feature])
    return rows


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("where", ["reference", "cpu"])
@pytest.mark.parametrize(
    "tables", [(), ("shared_head_norm",), ("embed_tokens", "shared_head_head")], ids=len
)
def test_drafts_are_those_of_an_independent_pass(
    tables: tuple[str, ...], where: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = open_device(where)
    model, drafter, infos = pair_of(name, device, *tables, n_max=4)
    plain, seen = Plain(infos, name == "qwen35moe"), list[NDArray[np.float32]]()
    choose = drafter._chosen

    def chosen(chain: Any, row: Any) -> int | None:
        seen.append(device.read(drafter._head.logits(row.feature))[0].copy())
        return choose(chain, row)

    monkeypatch.setattr(drafter, "_chosen", chosen)
    text = [int(token) for token in golden(name)["tokens"][:20]]
    read_prompt(model, drafter, text, chunk=7)
    for _ in range(3):
        seen.clear()
        residual = outputs_of(name, tables, text[:-1])
        expected = drafted(plain, text, residual, 4)
        draft = drafter.draft(text, 4)
        assert list(draft.tokens) == [int(row.argmax()) for row in expected]
        np.testing.assert_allclose(seen, expected, rtol=0, atol=2e-4)
        take_step(model, drafter, text, 4)


def outputs_of(name: str, tables: tuple[str, ...], tokens: Sequence[int]) -> Floats:
    """What leaves the last layer, of a model that reads it all at once."""
    device = open_device("reference")
    model, _, _ = pair_of(name, device, *tables)
    output = model(tokens, taps=(model.shared.layers,))
    return device.read(output.taps[0]).astype(np.float64)


# --- it changes nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_it_changes_no_bit(name: str) -> None:
    device = open_device("cpu", 2)
    model, drafter, _ = pair_of(name, device)
    bench = Bench(device, model)
    plain = {
        kind: bench.told(NoDrafter(), SpecOptions(), sample)
        for kind, sample in (
            ("greedy", SampleOptions(temp=0)),
            ("sampled", SampleOptions(temp=0.8, seed=1)),
        )
    }
    for width in (1, 2, 5, 16):
        bench.check(drafter, plain, width=width)
    bench.check(drafter, plain)
    model, drafter, _ = pair_of(name, device, tree=9)
    Bench(device, model).check(drafter, plain, tree=9)


@pytest.mark.parametrize("taps", [(8,), (3, 8), (8, 0)])
@pytest.mark.parametrize("logits", [0, 1, 3, 10])
def test_what_leaves_the_last_layer_can_be_seen_beside_any_logits(
    logits: int, taps: tuple[int, ...]
) -> None:
    device = open_device("cpu")
    model = build(*tensors_of("qwen35"), device)
    tokens = [int(token) for token in golden("qwen35")["tokens"][:10]]
    plain = model(tokens, logits).logits.copy()
    model.cache.truncate(0)
    output = model(tokens, logits, taps)
    np.testing.assert_array_equal(output.logits, plain)
    assert [tap.shape for tap in output.taps] == [(10, WIDTH)] * len(taps)
    left = device.read(output.taps[taps.index(8)]).astype(np.float64)
    _, infos = tensors_of("qwen35")
    head, norm = (rows_of(infos[f"{each}.weight"]) for each in ("output", "output_norm"))
    np.testing.assert_allclose(
        rms(left, norm.reshape(-1)) @ head.T, all_logits(tokens), rtol=0, atol=1e-4
    )


@cache
def _all(tokens: tuple[int, ...]) -> NDArray[np.float32]:
    model = build(*tensors_of("qwen35"), open_device("reference"))
    return model(tokens, len(tokens)).logits.copy()


def all_logits(tokens: Sequence[int]) -> NDArray[np.float32]:
    return _all(tuple(tokens))


# --- from files -----------------------------------------------------------------------------------


def written(path: Path, name: str, *, alone: bool = False) -> Path:
    """A model with its block as a file, or the block alone."""
    metadata, infos = with_block(name)
    writer = gguf.GGUFWriter(path, metadata.architecture)
    reader = gguf.GGUFReader(path_of(name))
    changed = dict(metadata.items())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = changed.get(key, field.contents())
        kind = field.types[0]
        sub_type = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        if kind == gguf.GGUFValueType.ARRAY:
            value = field.contents()
        writer.add_key_value(key, value, kind, sub_type)
    writer.add_uint32(f"{metadata.architecture}.nextn_predict_layers", 1)
    for key, info in infos.items():
        if not alone or key.startswith(f"blk.{BLOCK}."):
            writer.add_tensor(key, rows_of(info))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def told(options: LoadOptions) -> tuple[list[int], Any]:
    loaded = load(options)
    text = [int(token) for token in golden("qwen35")["tokens"][:12]]
    assert loaded.drafter is not None
    read_prompt(loaded.model, loaded.drafter, text)
    for _ in range(4):
        take_step(loaded.model, loaded.drafter, text, 4)
    return text, loaded


def test_the_models_own_file_and_one_beside_it_draft_the_same(tmp_path: Path) -> None:
    model = written(tmp_path / "model.gguf", "qwen35")
    beside = written(tmp_path / "mtp-model.gguf", "qwen35", alone=True)
    common: dict[str, Any] = {"device": "reference", "context": 256, "warmup": False}
    own, loaded = told(LoadOptions(model, spec=SpecOptions(types=("draft-mtp",)), **common))
    other, apart = told(LoadOptions(model, spec=SpecOptions(model=beside), **common))
    assert own == other
    for info in (loaded.info.draft, apart.info.draft):
        assert info.kind == "draft-mtp"
        assert info.taps == (8,)
    assert loaded.info.draft.parameters == apart.info.draft.parameters
    assert loaded.info.draft.file_bytes < apart.info.draft.file_bytes
    assert loaded.info.draft.memory.weights == apart.info.draft.memory.weights > 0


def test_a_block_that_nobody_asked_for_is_left_out_with_a_note(tmp_path: Path) -> None:
    path, events = written(tmp_path / "model.gguf", "qwen35"), list[Any]()
    loaded = load(LoadOptions(path, device="reference", context=256), events.append)
    assert loaded.drafter is None
    assert any("--spec-type draft-mtp drafts with it" in note for note in loaded.info.notes)
    plain = load(LoadOptions(path_of("qwen35"), device="reference", context=256))
    assert loaded.info.memory.weights == plain.info.memory.weights
    done = [event.done for event in events if event.stage == "loading"]
    assert done[-1] == next(event.total for event in events if event.stage == "loading")


def test_a_model_without_a_block_cannot_be_asked_for_it(tmp_path: Path) -> None:
    spec = SpecOptions(types=("draft-mtp",))
    with pytest.raises(BadModel, match="has 0 blocks that predict tokens further ahead"):
        load(LoadOptions(path_of("qwen35"), device="reference", spec=spec))
    with pytest.raises(BadModel, match="has 0 blocks that predict tokens further ahead"):
        load(LoadOptions(path_of("qwen3"), device="reference", spec=spec))


def test_a_block_of_another_model_is_refused() -> None:
    metadata, infos = with_block("qwen35")
    alone = {key: info for key, info in infos.items() if key.startswith(f"blk.{BLOCK}.")}
    values = dict(metadata.items()) | {"qwen35.vocab_size": 500}
    model = build(*tensors_of("qwen35"), open_device("reference"))
    with pytest.raises(BadModel, match="predicts 500 tokens, but the model has 512"):
        draft_for(model, open_device("reference"), (Metadata(values, "some.gguf"), alone))
