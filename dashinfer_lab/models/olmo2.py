"""OLMo 2 (OLMo et al. 2024; Hugging Face Olmo2ForCausalLM); knows nothing of how it will run."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["olmo2"]


@register("olmo2")
def olmo2(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Llama's decoder, its norms behind each block instead of before.

    Queries and keys are normalised whole, all heads together.
    """
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for _ in g.layers("model.layers", c.num_layers):
        q = g.linear("self_attn.q_proj", x, c.num_heads * c.head_dim, bias=c.attention_bias)
        k = g.linear("self_attn.k_proj", x, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        v = g.linear("self_attn.v_proj", x, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        q = g.rmsnorm("self_attn.q_norm", q, eps=c.norm_eps)
        k = g.rmsnorm("self_attn.k_norm", k, eps=c.norm_eps)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        a = g.attention("self_attn", q, k, v, num_heads=c.num_heads, num_kv_heads=c.num_kv_heads)
        h = g.linear("self_attn.o_proj", a, c.hidden_size, bias=c.attention_bias)
        x = x + g.rmsnorm("post_attention_layernorm", h, eps=c.norm_eps)
        gate = g.linear("mlp.gate_proj", x, c.intermediate_size)
        up = g.linear("mlp.up_proj", x, c.intermediate_size)
        h = g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
        x = x + g.rmsnorm("post_feedforward_layernorm", h, eps=c.norm_eps)
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
