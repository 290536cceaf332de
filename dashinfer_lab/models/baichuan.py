"""Baichuan, 2 (Yang et al. 2023; Hugging Face BaichuanForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["baichuan"]


@register("baichuan")
def baichuan(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder; 13B has ALiBi, Baichuan 2 a head of unit rows."""
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    widths = dict.fromkeys("qkv", c.num_heads * c.head_dim)
    for _ in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q, k, v = g.fused_linear("self_attn.W_pack", h, widths)
        if not c.alibi:
            q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention(
            "self_attn", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads, alibi=c.alibi
        )
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        gate = g.linear("mlp.gate_proj", h, c.intermediate_size)
        up = g.linear("mlp.up_proj", h, c.intermediate_size)
        x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size, unit_rows=c.unit_head)
