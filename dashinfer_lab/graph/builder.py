"""Builds the ONNX graph of a decoder from calls that name its weights as checkpoints do.

Knows nothing of weights' bytes, of devices or of any model; formats come from the scheme.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dashinfer_lab.config import ExpertConfig, ModelConfig, RopeConfig
from dashinfer_lab.graph.attention_options import alibi_slopes, logn_table
from dashinfer_lab.graph.functions import ACTIVATION_BITS, DOMAIN, OPSET, ROTARY_IDS
from dashinfer_lab.graph.model_graph import ModelGraph
from dashinfer_lab.graph.nodes import NodeBuilder, Value, shaped, tensor
from dashinfer_lab.graph.rope import head_order, rotary_table
from dashinfer_lab.graph.weights import FusedRows, WeightDeclaration, expert_matrices
from dashinfer_lab.quantize import GROUPED_BITS, Scheme, WeightRole, group_length

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["GraphBuilder", "Value"]

_UNPACK = {
    "f32": "UnpackPanelsF32",
    "bf16": "UnpackPanelsBF16",
    "u8": "InstantDequantize",
    "u4": "InstantDequantizeU4",
}
_PANEL_TYPE = {"f32": "FLOAT", "bf16": "BFLOAT16", "u8": "UINT8", "u4": "UINT8"}


class GraphBuilder(NodeBuilder):
    """Collects nodes and weight declarations while a model function runs."""

    def __init__(self, config: ModelConfig, scheme: Scheme) -> None:
        super().__init__()
        self._config = config
        self._scheme = scheme
        self._initializers: dict[str, ir.Value] = {}
        self._weights: dict[str, WeightDeclaration] = {}
        self._unpacked: dict[str, ir.Value] = {}
        self._cache_inputs: list[ir.Value] = []
        self._cache_outputs: list[ir.Value] = []
        self.input_ids = Value(self, tensor("input_ids", "INT64", ["B", "S"]), 0)
        self._position_ids = tensor("position_ids", "INT64", ["B", "S"])
        self._rotary_ids = self._position_ids
        if config.num_rotary_stages > 1:
            self._rotary_ids = tensor(ROTARY_IDS, "INT64", ["B", "S"])
        self._rotary: dict[RopeConfig, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
        self._head_order = head_order(config.rope, config.head_dim)
        self._tables: dict[str, NDArray[np.float32]] = {}

    def embedding(self, name: str, ids: Value, vocab_size: int, hidden_size: int) -> Value:
        """Look up rows of `name`.weight [vocab_size, hidden_size]."""
        name = self._path + name
        role: WeightRole = "tied" if self._config.tie_word_embeddings else "embedding"
        matrix = self._matrix(name, vocab_size, hidden_size, role)
        rows = self._node("Transpose", f"{name}.rows", [matrix], {"perm": [1, 0]})
        shaped(rows, [vocab_size, hidden_size])
        gathered = self._node("Gather", name, [rows, ids.source], {"axis": 0})
        return self._feature(gathered, hidden_size)

    def rmsnorm(self, name: str, x: Value, *, eps: float, offset: float = 0.0) -> Value:
        """Divide by the root mean square, times offset + `name`.weight (Zhang & Sennrich 2019)."""
        name = self._path + name
        weight = self._vector(f"{name}.weight", x.num_features, "norm", offset=offset)
        attributes = {"axis": -1, "epsilon": eps}
        normed = self._node("RMSNormalization", name, [x.source, weight], attributes)
        return self._feature(normed, x.num_features)

    def rmsnorm_heads(
        self, name: str, x: Value, num_heads: int, *, eps: float, offset: float = 0.0
    ) -> Value:
        """Normalise each head, scale all by offset + `name`.weight [D] (Henry et al. 2020)."""
        name = self._path + name
        head_dim = x.num_features // num_heads
        weight = self._vector(f"{name}.weight", head_dim, "norm", offset=offset)
        inputs = [x.source, weight]
        attributes = {"num_heads": num_heads, "epsilon": eps}
        normed = self._node("RMSNormPerHead", name, inputs, attributes, domain=DOMAIN)
        return self._feature(normed, x.num_features)

    def linear(
        self, name: str, x: Value, num_features: int, *, bias: bool = False, turns: bool = False
    ) -> Value:
        """Multiply by `name`.weight [num_features, x.num_features]; add `name`.bias if asked.

        turns: the heads that it makes are going to `rotary`, and are laid out for it.
        """
        order = self._head_order if turns else ()
        return self._linear(name, x, num_features, "linear", bias, order=order)

    def fused_linear(
        self,
        name: str,
        x: Value,
        parts: Mapping[str, int],
        *,
        groups: int = 1,
        bias: bool = False,
        turns: Collection[str] = (),
    ) -> list[Value]:
        """Multiply by the row blocks of `name`.weight, which lie one after another in each group.

        parts: features of each block, all groups together; block "q" is the weight `name`.q.
        turns: the blocks whose heads are going to `rotary`.
        """
        total = sum(parts.values())
        values: list[Value] = []
        first = 0
        for part, width in parts.items():
            fused = FusedRows(self._path + name, total, first, width // groups, total // groups)
            order = self._head_order if part in turns else ()
            values.append(self._linear(f"{name}.{part}", x, width, "linear", bias, fused, order))
            first += width // groups
        return values

    def router(self, name: str, x: Value, num_experts: int) -> Value:
        """Multiply by `name`.weight [num_experts, x.num_features], never stored in integers."""
        return self._linear(name, x, num_experts, "router", bias=False)

    def experts(
        self,
        name: str,
        x: Value,
        logits: Value,
        sizes: ExpertConfig,
        parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    ) -> Value:
        """Sum down(silu(gate(x)) * up(x)) over the experts of each row's largest logits, weighted.

        Expert 3's gate is `name`.3.gate_proj.weight (Shazeer et al. 2017; Jiang et al. 2024).
        """
        name, inner = self._path + name, sizes.intermediate_size
        weights = [
            self._unpack(self._declare(weight, (sizes.count, *shape), "linear", experts=rows))
            for weight, shape, rows in expert_matrices(name, parts, x.num_features, inner)
        ]
        attributes = {"top_k": sizes.per_token, "renormalise": int(sizes.renormalise)}
        inputs = [x.source, logits.source, *weights]
        summed = self._node("SparseExperts", name, inputs, attributes, domain=DOMAIN)
        return self._feature(summed, x.num_features)

    def head(self, name: str, x: Value, vocab_size: int, *, unit_rows: bool = False) -> Value:
        """Project to logits by `name`.weight, or by the embedding where the config ties them.

        unit_rows: each row is divided by its length, at conversion; such a head is never tied.
        """
        tied = next((w for w in self._weights.values() if w.role == "tied"), None)
        if tied is None:
            logits = self._linear(name, x, vocab_size, "head", bias=False)
            weight = f"{self._path}{name}.weight"
            self._weights[weight] = replace(self._weights[weight], unit_rows=unit_rows)
            return logits
        inputs = [x.source, self._unpacked[tied.name]]
        product = self._node("MatMul", self._path + name, inputs)
        return self._feature(product, vocab_size)

    def rotary(self, x: Value, num_heads: int, rope: RopeConfig | None = None) -> Value:
        """Turn the pairs of every head by the position's angles (Su et al. 2021).

        rope: the layer's, where layers differ; the model's if None.
        """
        turns = rope or self._config.rope
        if turns not in self._rotary:
            self._rotary[turns] = rotary_table(self._config, turns)
        cos, sin = self._rotary[turns]
        place = "rope.local" if rope and rope == self._config.local_rope else "rope"
        attributes = {"num_heads": num_heads, "interleaved": 0}
        tables = [self._table(f"{place}.cos", cos), self._table(f"{place}.sin", sin)]
        inputs = [x.source, *tables, self._rotary_ids]
        turned = self._node("RotaryEmbedding", f"{x.source.name}.rotary", inputs, attributes)
        return self._feature(turned, x.num_features)

    def attention(
        self,
        name: str,
        q: Value,
        k: Value,
        v: Value,
        *,
        num_heads: int,
        num_kv_heads: int,
        scale: float | None = None,
        window: int | None = None,
        softcap: float | None = None,
        alibi: bool = False,
        logn: int | None = None,
    ) -> Value:
        """Attend causally over the past and the present keys of the layer (Vaswani et al. 2017).

        Adds the layer's past and present to the inputs and outputs of the graph.
        scale: of scores, 1 / sqrt(head size) where None.  window: keys that a row sees, the last
        ones, its own among them.  softcap: scores become softcap * tanh(score / softcap) once
        scaled.  alibi: scores fall by the head's slope with each key back; q and k need not be
        turned then.  logn: queries are multiplied by the logarithm of their position to this base
        beyond it.
        """
        layer = len(self._cache_inputs) // 2
        head_dim = k.num_features // num_kv_heads
        past = [
            tensor(f"past_{part}.{layer}", "FLOAT", ["B", num_kv_heads, "P", head_dim])
            for part in ("key", "value")
        ]
        present = [
            tensor(f"present_{part}.{layer}", "FLOAT", ["B", num_kv_heads, "T", head_dim])
            for part in ("key", "value")
        ]
        attributes = {
            "is_causal": 1,
            "q_num_heads": num_heads,
            "kv_num_heads": num_kv_heads,
            "scale": scale or 1 / sqrt(head_dim),
        }
        if softcap is not None:
            attributes["softcap"] = softcap
        queries = q.source if logn is None else self._logn(q, logn).source
        mask = self._mask(name, past[0], window, num_heads if alibi else None)
        inputs = [queries, k.source, v.source, mask, *past]
        attended = self._node("Attention", self._path + name, inputs, attributes, present)
        self._cache_inputs += past
        self._cache_outputs += present
        return self._feature(attended, num_heads * head_dim)

    def _logn(self, queries: Value, trained_length: int) -> Value:
        one = logn_table(trained_length, self._config.context_length)
        table = np.tile(one, self._config.num_rotary_stages)
        inputs = [queries.source, self._table("logn", table), self._rotary_ids]
        scaled = self._node("LogN", f"{queries.source.name}.logn", inputs, domain=DOMAIN)
        return self._feature(scaled, queries.num_features)

    def _mask(
        self, name: str, past_key: ir.Value, window: int | None, num_alibi_heads: int | None
    ) -> ir.Value | None:
        """Attention's mask [B, 1 or heads, S, T], beside that no key is seen before its time."""
        name, inputs = f"{self._path}{name}.mask", [self._position_ids, past_key]
        if window is not None and num_alibi_heads is not None:
            raise ValueError(f"{name}: ALiBi within a window")
        if window is not None:
            return self._node("CausalWindow", name, inputs, {"window": window}, domain=DOMAIN)
        if num_alibi_heads is None:
            return None
        slopes = self._table("alibi.slopes", alibi_slopes(num_alibi_heads))
        return self._node("AlibiBias", name, [*inputs, slopes], domain=DOMAIN)

    def _table(self, name: str, table: NDArray[np.float32]) -> ir.Value:
        """An initialiser that is computed, the same wherever it is asked for."""
        known = self._tables.setdefault(name, table)
        if known is not table and not np.array_equal(known, table):
            raise ValueError(f"table {name!r} has two contents")
        return self._initializer(name, "FLOAT", table.shape)

    def finish(self, logits: Value) -> ModelGraph:
        """Close the graph with `logits` as its first output."""
        import onnx_ir as ir

        logits.source.name = "logits"
        positions = list(dict.fromkeys([self._position_ids, self._rotary_ids]))
        graph = ir.Graph(
            [self.input_ids.source, *positions, *self._cache_inputs],
            [logits.source, *self._cache_outputs],
            nodes=list(self._nodes.values()),
            initializers=list(self._initializers.values()),
            opset_imports={"": OPSET, DOMAIN: 1},
            name=self._config.model_type,
        )
        return ModelGraph(
            ir=graph,
            config=self._config,
            scheme=self._scheme,
            weights=tuple(self._weights.values()),
            tables=self._tables,
        )

    def _linear(
        self,
        name: str,
        x: Value,
        num_features: int,
        role: WeightRole,
        bias: bool,
        fused: FusedRows | None = None,
        order: tuple[int, ...] = (),
    ) -> Value:
        name = self._path + name
        matrix = self._matrix(name, num_features, x.num_features, role, fused, order)
        product = self._node("MatMul", name, [x.source, matrix])
        if bias:
            vector = self._vector(f"{name}.bias", num_features, "bias", fused, order)
            product = self._node("Add", f"{name}.biased", [product, vector])
        return self._feature(product, num_features)

    def _matrix(
        self,
        name: str,
        n: int,
        k: int,
        role: WeightRole,
        fused: FusedRows | None = None,
        order: tuple[int, ...] = (),
    ) -> ir.Value:
        """Declare `name`.weight [n, k] and return W [k, n] unpacked from its panels."""
        return self._unpack(self._declare(f"{name}.weight", (n, k), role, fused, order))

    def _unpack(self, weight: WeightDeclaration) -> ir.Value:
        """Return the declared W [k, n]; those of experts lie side by side, in whole panels."""
        n, k = weight.num_columns, weight.shape[-1]
        shapes = weight.stored_shapes()
        panel_name, *group_names = shapes
        inputs = [self._initializer(panel_name, _PANEL_TYPE[weight.format], shapes[panel_name])]
        # The type of scale and minimum is settled when the weight is quantised.
        inputs += [self._initializer(group, "FLOAT", shapes[group]) for group in group_names]
        attributes = {"k": k, "n": n}
        if weight.format in GROUPED_BITS:
            attributes["group_size"] = group_length(k, weight.group_size)
        unpacked = self._node(
            _UNPACK[weight.format], f"{weight.name}.unpacked", inputs, attributes, domain=DOMAIN
        )
        if weight.role == "linear" and weight.format in GROUPED_BITS:
            node = self._nodes[f"{weight.name}.unpacked"]
            node.metadata_props[ACTIVATION_BITS] = str(self._scheme.activation_bits)
        self._unpacked[weight.name] = shaped(unpacked, [k, n])
        return unpacked

    def _vector(
        self,
        name: str,
        length: int,
        role: WeightRole,
        fused: FusedRows | None = None,
        order: tuple[int, ...] = (),
        offset: float = 0.0,
    ) -> ir.Value:
        self._declare(name, (length,), role, fused, order, offset=offset)
        return self._initializer(name, "FLOAT", (length,))

    def _declare(
        self,
        name: str,
        shape: tuple[int, ...],
        role: WeightRole,
        fused: FusedRows | None = None,
        order: tuple[int, ...] = (),
        **changes: Any,
    ) -> WeightDeclaration:
        if name in self._weights:
            raise ValueError(f"weight {name!r} is declared twice")
        weight_format = self._scheme.format_of(name, role)
        group_size = self._scheme.group_size_of(role)
        if fused:
            fused = replace(fused, name=f"{fused.name}.{name.rpartition('.')[2]}")
        self._weights[name] = WeightDeclaration(
            name, shape, role, weight_format, group_size, fused, order, **changes
        )
        return self._weights[name]

    def _initializer(self, name: str, dtype: str, shape: Any) -> ir.Value:
        if name not in self._initializers:
            self._initializers[name] = tensor(name, dtype, list(shape))
        return self._initializers[name]
