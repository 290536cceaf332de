"""Qwen 3 MoE (Yang et al. 2025; Hugging Face Qwen3MoeForCausalLM); knows no weights."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["qwen3_moe"]


@register("qwen3_moe")
def qwen3_moe(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Qwen 3's decoder, mixtures of experts in most layers."""
    assert c.experts is not None
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q = g.linear("self_attn.q_proj", h, c.num_heads * c.head_dim, bias=c.attention_bias)
        k = g.linear("self_attn.k_proj", h, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        v = g.linear("self_attn.v_proj", h, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        q = g.rmsnorm_heads("self_attn.q_norm", q, c.num_heads, eps=c.norm_eps)
        k = g.rmsnorm_heads("self_attn.k_norm", k, c.num_kv_heads, eps=c.norm_eps)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        heads, kv_heads, window = c.num_heads, c.num_kv_heads, c.window(layer)
        a = g.attention("self_attn", q, k, v, num_heads=heads, num_kv_heads=kv_heads, window=window)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size, bias=c.attention_bias)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        if layer in c.experts.dense_layers:
            gate = g.linear("mlp.gate_proj", h, c.intermediate_size)
            up = g.linear("mlp.up_proj", h, c.intermediate_size)
            x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
            continue
        logits = g.router("mlp.gate", h, c.experts.count)
        x = x + g.experts("mlp.experts", h, logits, c.experts)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
