"""Phi 3 (Abdin et al. 2024; Hugging Face Phi3ForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["phi3"]


@register("phi3")
def phi3(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder with fused projections."""
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        kv_width = c.num_kv_heads * c.head_dim
        widths = {"q": c.num_heads * c.head_dim, "k": kv_width, "v": kv_width}
        q, k, v = g.fused_linear("self_attn.qkv_proj", h, widths, turns="qk")
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        heads, kv_heads, window = c.num_heads, c.num_kv_heads, c.window(layer)
        a = g.attention("self_attn", q, k, v, num_heads=heads, num_kv_heads=kv_heads, window=window)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        halves = {"gate": c.intermediate_size, "up": c.intermediate_size}
        gate, up = g.fused_linear("mlp.gate_up_proj", h, halves)
        x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
