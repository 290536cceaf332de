"""The tensors of a layer of every family's tiny checkpoint, and their shapes; knows no weights."""

from __future__ import annotations

from tests.model.case_sizes import HEAD_DIM, HIDDEN, INNER, KV_WIDTH, Q_WIDTH, SQUARE

__all__ = [
    "ALL_BIASES",
    "ATTENTION",
    "GEMMA_NORMS",
    "GLM",
    "INTERNLM2",
    "LAYER",
    "OLMO2",
    "PHI3",
    "PHI4",
    "POST_NORMS",
    "QKV_BIASES",
    "QK_NORMS",
    "SHARED_EXPERT",
]

LAYER: dict[str, tuple[int, ...]] = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (Q_WIDTH, HIDDEN),
    "self_attn.k_proj.weight": (KV_WIDTH, HIDDEN),
    "self_attn.v_proj.weight": (KV_WIDTH, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, Q_WIDTH),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_proj.weight": (INNER, HIDDEN),
    "mlp.up_proj.weight": (INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
}
ATTENTION = {name: shape for name, shape in LAYER.items() if "mlp" not in name}
SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj.weight": (83, HIDDEN),
    "mlp.shared_expert.up_proj.weight": (83, HIDDEN),
    "mlp.shared_expert.down_proj.weight": (HIDDEN, 83),
    "mlp.shared_expert_gate.weight": (1, HIDDEN),
}
QKV_BIASES = {
    "self_attn.q_proj.bias": (Q_WIDTH,),
    "self_attn.k_proj.bias": (KV_WIDTH,),
    "self_attn.v_proj.bias": (KV_WIDTH,),
}
QK_NORMS = {"self_attn.q_norm.weight": (HEAD_DIM,), "self_attn.k_norm.weight": (HEAD_DIM,)}
ALL_BIASES = QKV_BIASES | {"self_attn.o_proj.bias": (HIDDEN,)}
PHI3 = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.qkv_proj.weight": (Q_WIDTH + 2 * KV_WIDTH, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, Q_WIDTH),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_up_proj.weight": (2 * INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
}
PHI4 = {
    "input_layernorm.weight": (SQUARE,),
    "self_attn.qkv_proj.weight": (SQUARE + 2 * SQUARE // 3, SQUARE),
    "self_attn.o_proj.weight": (SQUARE, SQUARE),
    "post_attention_layernorm.weight": (SQUARE,),
    "mlp.gate_up_proj.weight": (2 * INNER, SQUARE),
    "mlp.down_proj.weight": (SQUARE, INNER),
}
"""Of 6 heads of 16 and 2 for keys: its configuration class wants heads as wide as the rows."""
GLM = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (Q_WIDTH, HIDDEN),
    "self_attn.k_proj.weight": (KV_WIDTH, HIDDEN),
    "self_attn.v_proj.weight": (KV_WIDTH, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, Q_WIDTH),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.gate_up_proj.weight": (2 * INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
}
POST_NORMS = {
    "post_self_attn_layernorm.weight": (HIDDEN,), "post_mlp_layernorm.weight": (HIDDEN,)
}  # fmt: skip
INTERNLM2 = {
    "attention_norm.weight": (HIDDEN,),
    "attention.wqkv.weight": (Q_WIDTH + 2 * KV_WIDTH, HIDDEN),
    "attention.wo.weight": (HIDDEN, Q_WIDTH),
    "ffn_norm.weight": (HIDDEN,),
    "feed_forward.w1.weight": (INNER, HIDDEN),
    "feed_forward.w3.weight": (INNER, HIDDEN),
    "feed_forward.w2.weight": (HIDDEN, INNER),
}
GEMMA_NORMS = {
    "pre_feedforward_layernorm.weight": (HIDDEN,), "post_feedforward_layernorm.weight": (HIDDEN,)
}  # fmt: skip
OLMO2 = {
    **{name: shape for name, shape in LAYER.items() if name != "input_layernorm.weight"},
    "self_attn.q_norm.weight": (Q_WIDTH,),
    "self_attn.k_norm.weight": (KV_WIDTH,),
    "post_feedforward_layernorm.weight": (HIDDEN,),
}
