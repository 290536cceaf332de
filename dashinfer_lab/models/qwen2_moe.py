"""Qwen 1.5, 2 MoE (Yang et al. 2024; Hugging Face Qwen2MoeForCausalLM); knows no device."""

from __future__ import annotations

from dashinfer_lab.config import ModelConfig
from dashinfer_lab.graph import GraphBuilder, Value
from dashinfer_lab.models.registry import register

__all__ = ["qwen2_moe"]


@register("qwen2_moe")
def qwen2_moe(g: GraphBuilder, c: ModelConfig) -> Value:
    """Logits [B, S, vocab] of Qwen 2's decoder; one expert more than a token chooses meets all."""
    assert c.experts is not None
    assert c.experts.shared_size is not None
    x = g.embedding("model.embed_tokens", g.input_ids, c.vocab_size, c.hidden_size)
    for layer in g.layers("model.layers", c.num_layers):
        h = g.rmsnorm("input_layernorm", x, eps=c.norm_eps)
        q = g.linear("self_attn.q_proj", h, c.num_heads * c.head_dim, bias=c.attention_bias)
        k = g.linear("self_attn.k_proj", h, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        v = g.linear("self_attn.v_proj", h, c.num_kv_heads * c.head_dim, bias=c.attention_bias)
        q, k = g.rotary(q, c.num_heads), g.rotary(k, c.num_kv_heads)
        heads, kv_heads, window = c.num_heads, c.num_kv_heads, c.window(layer)
        a = g.attention("self_attn", q, k, v, num_heads=heads, num_kv_heads=kv_heads, window=window)
        x = x + g.linear("self_attn.o_proj", a, c.hidden_size)
        h = g.rmsnorm("post_attention_layernorm", x, eps=c.norm_eps)
        if layer in c.experts.dense_layers:
            gate = g.linear("mlp.gate_proj", h, c.intermediate_size)
            up = g.linear("mlp.up_proj", h, c.intermediate_size)
            x = x + g.linear("mlp.down_proj", g.silu(gate) * up, c.hidden_size)
            continue
        logits = g.router("mlp.gate", h, c.experts.count)
        chosen = g.experts("mlp.experts", h, logits, c.experts)
        gate = g.linear("mlp.shared_expert.gate_proj", h, c.experts.shared_size)
        up = g.linear("mlp.shared_expert.up_proj", h, c.experts.shared_size)
        shared = g.linear("mlp.shared_expert.down_proj", g.silu(gate) * up, c.hidden_size)
        x = x + (chosen + g.gated(shared, g.router("mlp.shared_expert_gate", h, 1)))
    x = g.rmsnorm("model.norm", x, eps=c.norm_eps)
    return g.head("lm_head", x, c.vocab_size)
