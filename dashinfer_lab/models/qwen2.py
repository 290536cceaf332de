"""Qwen 1.5, 2, 2.5 (Yang et al. 2024; Hugging Face Qwen2ForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["qwen2"]


@register("qwen2")
def qwen2(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder with biases on queries, keys and values."""
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q = g.linear("self_attn.q_proj", h, c.num_heads * c.head_dim, bias=True)
        k = g.linear("self_attn.k_proj", h, c.num_kv_heads * c.head_dim, bias=True)
        v = g.linear("self_attn.v_proj", h, c.num_kv_heads * c.head_dim, bias=True)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        heads, kv_heads, window = c.num_heads, c.num_kv_heads, c.window(layer)
        a = g.attention("self_attn", q, k, v, num_heads=heads, num_kv_heads=kv_heads, window=window)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        gate = g.linear("mlp.gate_proj", h, c.intermediate_size)
        up = g.linear("mlp.up_proj", h, c.intermediate_size)
        x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
