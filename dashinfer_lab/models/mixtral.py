"""Mixtral (Jiang et al. 2024; Hugging Face MixtralForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["mixtral"]


@register("mixtral")
def mixtral(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Mistral's decoder, a mixture of experts in every layer."""
    assert c.experts is not None
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q = g.linear("self_attn.q_proj", h, c.num_heads * c.head_dim)
        k = g.linear("self_attn.k_proj", h, c.num_kv_heads * c.head_dim)
        v = g.linear("self_attn.v_proj", h, c.num_kv_heads * c.head_dim)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        heads, kv_heads, window = c.num_heads, c.num_kv_heads, c.window(layer)
        a = g.attention("self_attn", q, k, v, num_heads=heads, num_kv_heads=kv_heads, window=window)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        logits = g.router("block_sparse_moe.gate", h, c.experts.count)
        parts = ("w1", "w3", "w2")
        x = x + g.experts("block_sparse_moe.experts", h, logits, c.experts, parts)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
