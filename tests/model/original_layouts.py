"""Layers and configs of models that bring code of their own, under the keys and names they have."""

from __future__ import annotations

from tests.model.case_sizes import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    KV_WIDTH,
    LAYERS,
    Q_WIDTH,
    SQUARE,
    VOCAB,
)

__all__ = [
    "BAICHUAN_CONFIG",
    "BAICHUAN_LAYER",
    "CHATGLM_CONFIG",
    "CHATGLM_LAYER",
    "QWEN_CONFIG",
    "QWEN_LAYER",
]

CHATGLM_LAYER = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attention.query_key_value.weight": (Q_WIDTH + 2 * KV_WIDTH, HIDDEN),
    "self_attention.query_key_value.bias": (Q_WIDTH + 2 * KV_WIDTH,),
    "self_attention.dense.weight": (HIDDEN, Q_WIDTH),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.dense_h_to_4h.weight": (2 * INNER, HIDDEN),
    "mlp.dense_4h_to_h.weight": (HIDDEN, INNER),
}
CHATGLM_CONFIG: dict[str, object] = {
    "architectures": ["ChatGLMModel"],
    "model_type": "chatglm",
    "num_layers": LAYERS,
    "padded_vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "ffn_hidden_size": INNER,
    "kv_channels": HEAD_DIM,
    "num_attention_heads": HEADS,
    "multi_query_attention": True,
    "multi_query_group_num": KV_HEADS,
    "seq_length": 256,
    "layernorm_epsilon": 1e-5,
    "rmsnorm": True,
    "post_layer_norm": True,
    "add_bias_linear": False,
    "add_qkv_bias": True,
    "apply_query_key_layer_scaling": True,
    "apply_residual_connection_post_layernorm": False,
    "original_rope": True,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "eos_token_id": 2,
    "pad_token_id": 0,
}
BAICHUAN_LAYER = {
    "input_layernorm.weight": (SQUARE,),
    "self_attn.W_pack.weight": (3 * SQUARE, SQUARE),
    "self_attn.o_proj.weight": (SQUARE, SQUARE),
    "post_attention_layernorm.weight": (SQUARE,),
    "mlp.gate_proj.weight": (INNER, SQUARE),
    "mlp.up_proj.weight": (INNER, SQUARE),
    "mlp.down_proj.weight": (SQUARE, INNER),
}
BAICHUAN_CONFIG: dict[str, object] = {
    "architectures": ["BaichuanForCausalLM"],
    "vocab_size": VOCAB,
    "hidden_size": SQUARE,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 6,
    "model_max_length": 256,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}

QWEN_LAYER = {
    "ln_1.weight": (SQUARE,),
    "attn.c_attn.weight": (3 * SQUARE, SQUARE),
    "attn.c_attn.bias": (3 * SQUARE,),
    "attn.c_proj.weight": (SQUARE, SQUARE),
    "ln_2.weight": (SQUARE,),
    "mlp.w1.weight": (INNER, SQUARE),
    "mlp.w2.weight": (INNER, SQUARE),
    "mlp.c_proj.weight": (SQUARE, INNER),
}
QWEN_CONFIG: dict[str, object] = {
    "architectures": ["QWenLMHeadModel"],
    "model_type": "qwen",
    "vocab_size": VOCAB,
    "hidden_size": SQUARE,
    "intermediate_size": 2 * INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 6,
    "kv_channels": 16,
    "max_position_embeddings": 256,
    "seq_length": 64,
    "layer_norm_epsilon": 1e-6,
    "rotary_emb_base": 10000,
    "rotary_pct": 1.0,
    "scale_attn_weights": True,
    "no_bias": True,
    "use_dynamic_ntk": False,
    "use_logn_attn": True,
    "tie_word_embeddings": False,
    "fp16": False,
    "use_flash_attn": "auto",
}
