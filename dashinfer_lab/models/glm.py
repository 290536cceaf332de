"""GLM 4, 9B (GLM Team 2024; Hugging Face GlmForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["glm"]


@register("glm")
def glm(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder, of whose heads a part turns, pair by pair."""
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    q_width, kv_width = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    for _ in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q = g.linear("self_attn.q_proj", h, q_width, bias=c.attention_bias, turns=True)
        k = g.linear("self_attn.k_proj", h, kv_width, bias=c.attention_bias, turns=True)
        v = g.linear("self_attn.v_proj", h, kv_width, bias=c.attention_bias)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention("self_attn", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        halves = {"gate": c.intermediate_size, "up": c.intermediate_size}
        gate, up = g.fused_linear("mlp.gate_up_proj", h, halves)
        x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
