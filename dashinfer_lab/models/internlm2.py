"""InternLM 2, 2.5 (Cai et al. 2024; Hugging Face InternLM2ForCausalLM); knows no checkpoint."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["internlm2"]


@register("internlm2")
def internlm2(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder; wqkv holds queries, key and value of each group."""
    x = g.embedding("model.tok_embeddings", g.input_ids, c.vocab_size, c.hidden_size)
    for _ in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("attention_norm", x, eps=c.norm_eps)
        kv_width = c.num_kv_heads * c.head_dim
        widths = {"q": c.num_heads * c.head_dim, "k": kv_width, "v": kv_width}
        q, k, v = g.fused_linear(
            "attention.wqkv", h, widths, groups=c.num_kv_heads, bias=c.attention_bias
        )
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention("attention", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads)
        x = x + g.linear("attention.wo", a, c.hidden_size, bias=c.attention_bias)
        h = g.rmsnorm("ffn_norm", x, eps=c.norm_eps)
        gate = g.linear("feed_forward.w1", h, c.intermediate_size)
        up = g.linear("feed_forward.w3", h, c.intermediate_size)
        x = x + g.linear("feed_forward.w2", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("output", x, c.vocab_size)
