"""Gemma 3, text (Gemma Team 2025; Hugging Face Gemma3ForCausalLM); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["gemma3_text"]


@register("gemma3_text")
def gemma3_text(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Gemma 2's decoder; heads are normalised, windows turn faster."""
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    x = g.scaled(x, c.hidden_size**0.5)
    q_width, kv_width = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps, offset=1)
        q = g.linear("self_attn.q_proj", h, q_width, bias=c.attention_bias)
        k = g.linear("self_attn.k_proj", h, kv_width, bias=c.attention_bias)
        v = g.linear("self_attn.v_proj", h, kv_width, bias=c.attention_bias)
        q = g.rmsnorm_heads("self_attn.q_norm", q, c.num_heads, eps=c.norm_eps, offset=1)
        k = g.rmsnorm_heads("self_attn.k_norm", k, c.num_kv_heads, eps=c.norm_eps, offset=1)
        rope = c.rope_of(layer)
        q, k = g.rotary(q, c.num_heads, rope), g.rotary(k, c.num_kv_heads, rope)
        a = g.attention(
            "self_attn", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads,
            scale=c.attention_scale, window=c.window(layer), softcap=c.attention_softcap,
        )  # fmt: skip
        h = g.linear("self_attn.o_proj", a, c.hidden_size, bias=c.attention_bias)
        x = x + g.rmsnorm("post_attention_layernorm", h, eps=c.norm_eps, offset=1)
        h = g.rmsnorm("pre_feedforward_layernorm", x, eps=c.norm_eps, offset=1)
        gate = g.linear("mlp.gate_proj", h, c.intermediate_size)
        up = g.linear("mlp.up_proj", h, c.intermediate_size)
        h = g.linear("mlp.down_proj", g.gelu(gate) * up, c.hidden_size)
        x = x + g.rmsnorm("post_feedforward_layernorm", h, eps=c.norm_eps, offset=1)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps, offset=1)
    return g.softcap(g.head("lm_head", x, c.vocab_size), c.logit_softcap)
