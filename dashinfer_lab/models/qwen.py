"""Qwen, the first (Bai et al. 2023; Hugging Face QWenLMHeadModel); knows nothing of running."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["qwen"]


@register("qwen")
def qwen(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder; queries far on grow by the log of their position."""
    x = g.embedding("transformer.wte", g.input_ids, c.vocab_size, c.hidden_size)
    widths = dict.fromkeys("qkv", c.num_heads * c.head_dim)
    for _ in g.layers("transformer.h", c.num_layers):
        h = g.rmsnorm("ln_1", x, eps=c.norm_eps)
        q, k, v = g.fused_linear("attn.c_attn", h, widths, bias=True)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention(
            "attn", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads, logn=c.logn
        )
        x = x + g.linear("attn.c_proj", a, c.hidden_size)
        h = g.rmsnorm("ln_2", x, eps=c.norm_eps)
        gate = g.linear("mlp.w2", h, c.intermediate_size)
        up = g.linear("mlp.w1", h, c.intermediate_size)
        x = x + g.linear("mlp.c_proj", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("transformer.ln_f", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
