"""ChatGLM 2, 3 and GLM 4 as published (GLM Team 2024; Hugging Face ChatGLMModel); knows no config.

The layout of the models' own code; transformers saves the same decoder as `glm`.
"""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["chatglm"]


@register("chatglm")
def chatglm(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder; the first half of every head turns, pair by pair."""
    words = "transformer.embedding.word_embeddings"
    x = g.embedding(words, g.input_ids, c.vocab_size, c.hidden_size)
    kv_width = c.num_kv_heads * c.head_dim
    widths = {"q": c.num_heads * c.head_dim, "k": kv_width, "v": kv_width}
    for _ in g.layers("transformer.encoder.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q, k, v = g.fused_linear(
            "self_attention.query_key_value", h, widths, bias=c.attention_bias, turns="qk"
        )
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention("attention", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads)
        x = x + g.linear("self_attention.dense", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        halves = {"gate": c.intermediate_size, "up": c.intermediate_size}
        gate, up = g.fused_linear("mlp.dense_h_to_4h", h, halves)
        x = x + g.linear("mlp.dense_4h_to_h", g.silu(gate) * up, c.hidden_size)
    x = g.rmsnorm("transformer.encoder.final_layernorm", x, eps=c.norm_eps)
    return g.head("transformer.output_layer", x, c.vocab_size)
