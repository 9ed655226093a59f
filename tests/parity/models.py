"""The tiny models of `make_reference.py`: for each a name, its class, its configuration, the type
in which its weights are stored and the size of a shard. The order fixes the seeds: append."""

import torch
import transformers as t

COMMON = dict(
    vocab_size=144,
    num_hidden_layers=2,
    max_position_embeddings=256,
    initializer_range=0.25,
    bos_token_id=1,
    eos_token_id=[2, 3],
    pad_token_id=0,
)

WHOLE = "5GB"

# Hidden 32, four heads of 8 or 12, two key-value heads: what most of the models below share.
SMALL = COMMON | dict(
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
)

MODELS = {
    # Untied, llama3 rope scaling whose turning point lies inside the prompt, grouped heads, bf16.
    "llama-rope-scaled": (
        t.LlamaForCausalLM,
        t.LlamaConfig(
            **COMMON,
            hidden_size=64,
            intermediate_size=112,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=10000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Attention bias, tied, an odd number of query heads a group, f32.
    "qwen2-bias": (
        t.Qwen2ForCausalLM,
        t.Qwen2Config(
            **COMMON,
            hidden_size=48,
            intermediate_size=72,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
        torch.float32,
        WHOLE,
    ),
    # Norms on queries and keys, a head size that is not hidden / heads, tied, f16, two shards.
    "qwen3-qk-norm": (
        t.Qwen3ForCausalLM,
        t.Qwen3Config(
            **COMMON,
            hidden_size=64,
            intermediate_size=96,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=24,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        ),
        torch.float16,
        "80KB",
    ),
    # No grouping, untied, plain rope, f32, one layer more.
    "mistral-plain": (
        t.MistralForCausalLM,
        t.MistralConfig(
            **(COMMON | dict(num_hidden_layers=3)),
            hidden_size=32,
            intermediate_size=48,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=None,
            tie_word_embeddings=False,
        ),
        torch.float32,
        WHOLE,
    ),
    # A window on every layer, shorter than a block of the cache.
    "mistral-window": (
        t.MistralForCausalLM,
        t.MistralConfig(**SMALL, sliding_window=12, tie_word_embeddings=False),
        torch.bfloat16,
        WHOLE,
    ),
    # A window, longer than a block, on some layers.
    "ministral-layers": (
        t.MinistralForCausalLM,
        t.MinistralConfig(
            **(SMALL | dict(num_hidden_layers=3)),
            head_dim=12,
            sliding_window=19,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Queries that grow with the position, yarn with both mscales.
    "ministral3-yarn": (
        t.Ministral3ForCausalLM,
        t.Ministral3Config(
            **SMALL,
            head_dim=12,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=10000.0,
                factor=8.0,
                original_max_position_embeddings=32,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=0.5,
                llama_4_scaling_beta=0.3,
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Windows from a layer on, yarn.
    "qwen2-window-yarn": (
        t.Qwen2ForCausalLM,
        t.Qwen2Config(
            **(SMALL | dict(num_hidden_layers=3)),
            use_sliding_window=True,
            sliding_window=9,
            max_window_layers=1,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=10000.0,
                factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # All positions alike, biases everywhere.
    "llama-rope-linear": (
        t.LlamaForCausalLM,
        t.LlamaConfig(
            **SMALL,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Dynamic scaling changes nothing within the model's positions.
    "llama-rope-dynamic": (
        t.LlamaForCausalLM,
        t.LlamaConfig(
            **(SMALL | dict(num_hidden_layers=1)),
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    "gemma-tied": (
        t.GemmaForCausalLM,
        t.GemmaConfig(**SMALL, head_dim=12, hidden_activation="gelu_pytorch_tanh"),
        torch.bfloat16,
        WHOLE,
    ),
    # Both soft caps at work, local and global layers.
    "gemma2-soft-caps": (
        t.Gemma2ForCausalLM,
        t.Gemma2Config(
            **SMALL,
            head_dim=12,
            sliding_window=11,
            query_pre_attn_scalar=10,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=8.0,
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Local and global layers with a rope each, norms of queries and keys.
    "gemma3-two-ropes": (
        t.Gemma3ForCausalLM,
        t.Gemma3TextConfig(
            **(SMALL | dict(num_hidden_layers=3)),
            head_dim=12,
            sliding_window=11,
            query_pre_attn_scalar=14,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
                full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=8.0),
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Fused matrices, part of each head turned, the factors of long texts (all are long here).
    "phi3-longrope-long": (
        t.Phi3ForCausalLM,
        t.Phi3Config(
            **SMALL,
            sliding_window=23,
            original_max_position_embeddings=4,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=10000.0,
                partial_rotary_factor=0.75,
                long_factor=[1.0, 2.5, 7.0],
                short_factor=[1.0, 1.1, 1.3],
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # The factors of short texts: the model was made for no others.
    "phi3-longrope-short": (
        t.Phi3ForCausalLM,
        t.Phi3Config(
            **(SMALL | dict(max_position_embeddings=128, num_hidden_layers=1)),
            original_max_position_embeddings=128,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=10000.0,
                partial_rotary_factor=1.0,
                long_factor=[2.0, 2.5, 7.0, 8.0],
                short_factor=[1.0, 1.4, 1.9, 2.3],
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Every multiplier differs from one.
    "granite-multipliers": (
        t.GraniteForCausalLM,
        t.GraniteConfig(
            **SMALL,
            embedding_multiplier=3.0,
            attention_multiplier=0.21,
            residual_multiplier=0.6,
            logits_scaling=1.7,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Norms after instead of before, queries and keys normalised over all heads.
    "olmo2-norm-after": (
        t.Olmo2ForCausalLM,
        t.Olmo2Config(**SMALL),
        torch.bfloat16,
        WHOLE,
    ),
    # The same with windows, and yarn on the layers without one.
    "olmo3-window": (
        t.Olmo3ForCausalLM,
        t.Olmo3Config(
            **(SMALL | dict(num_hidden_layers=4)),
            sliding_window=10,
            rope_parameters=dict(
                sliding_attention=dict(rope_type="default", rope_theta=500.0),
                full_attention=dict(
                    rope_type="yarn",
                    rope_theta=500.0,
                    factor=8.0,
                    original_max_position_embeddings=32,
                    attention_factor=1.2,
                    beta_fast=16.0,
                    beta_slow=2.0,
                ),
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Every second layer without positions.
    "smollm3-no-rope": (
        t.SmolLM3ForCausalLM,
        t.SmolLM3Config(**SMALL, no_rope_layer_interval=2, tie_word_embeddings=True),
        torch.bfloat16,
        WHOLE,
    ),
    "mixtral-experts": (
        t.MixtralForCausalLM,
        t.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, sliding_window=20),
        torch.bfloat16,
        WHOLE,
    ),
    # Experts on some layers only.
    "qwen3-moe-mixed": (
        t.Qwen3MoeForCausalLM,
        t.Qwen3MoeConfig(
            **(SMALL | dict(num_hidden_layers=4)),
            head_dim=12,
            moe_intermediate_size=24,
            num_experts=6,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Shares of the chosen experts as they are.
    "qwen3-moe-shares": (
        t.Qwen3MoeForCausalLM,
        t.Qwen3MoeConfig(
            **SMALL,
            head_dim=8,
            moe_intermediate_size=16,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=False,
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # A shared expert behind a gate.
    "qwen2-moe-shared": (
        t.Qwen2MoeForCausalLM,
        t.Qwen2MoeConfig(
            **SMALL,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=40,
            num_experts=5,
            num_experts_per_tok=2,
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Sinks, windows, a clamped gate, yarn with fractional bounds.
    "gpt-oss-sinks": (
        t.GptOssForCausalLM,
        t.GptOssConfig(
            **SMALL,
            head_dim=12,
            sliding_window=13,
            num_local_experts=4,
            num_experts_per_tok=2,
            swiglu_limit=1.5,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1500.0,
                factor=8.0,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
                original_max_position_embeddings=32,
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # The same with experts in MXFP4, as its makers publish them.
    "gpt-oss-mxfp4": (
        t.GptOssForCausalLM,
        t.GptOssConfig(
            **(SMALL | dict(intermediate_size=64)),
            head_dim=8,
            sliding_window=13,
            num_local_experts=3,
            num_experts_per_tok=2,
            rope_parameters=dict(rope_type="default", rope_theta=1500.0),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Latent attention without a latent for queries, a dense layer first, shared experts.
    "deepseek-v2-lite": (
        t.DeepseekV2ForCausalLM,
        t.DeepseekV2Config(
            **(SMALL | dict(num_key_value_heads=4)),
            q_lora_rank=None,
            kv_lora_rank=20,
            qk_nope_head_dim=10,
            qk_rope_head_dim=6,
            v_head_dim=14,
            first_k_dense_replace=1,
            n_routed_experts=6,
            n_shared_experts=2,
            num_experts_per_tok=3,
            moe_intermediate_size=16,
            routed_scaling_factor=1.0,
            topk_method="greedy",
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Groups of experts, a latent for queries.
    "deepseek-v2-groups": (
        t.DeepseekV2ForCausalLM,
        t.DeepseekV2Config(
            **(SMALL | dict(num_key_value_heads=4)),
            q_lora_rank=18,
            kv_lora_rank=20,
            qk_nope_head_dim=10,
            qk_rope_head_dim=6,
            v_head_dim=10,
            first_k_dense_replace=0,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            n_shared_experts=1,
            num_experts_per_tok=3,
            moe_intermediate_size=16,
            routed_scaling_factor=2.0,
            topk_method="group_limited_greedy",
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # Sigmoid scores with corrections, groups by their best two, yarn that also scales the scores.
    "deepseek-v3": (
        t.DeepseekV3ForCausalLM,
        t.DeepseekV3Config(
            **(SMALL | dict(num_key_value_heads=4)),
            q_lora_rank=18,
            kv_lora_rank=20,
            qk_nope_head_dim=10,
            qk_rope_head_dim=8,
            v_head_dim=12,
            first_k_dense_replace=1,
            n_routed_experts=8,
            n_group=4,
            topk_group=2,
            n_shared_experts=1,
            num_experts_per_tok=3,
            moe_intermediate_size=16,
            routed_scaling_factor=2.5,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=10000.0,
                factor=8.0,
                original_max_position_embeddings=32,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
            ),
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # The text part of a model that also sees.
    "gemma3-with-vision": (
        t.Gemma3ForConditionalGeneration,
        t.Gemma3Config(
            text_config=dict(
                **SMALL,
                head_dim=12,
                sliding_window=11,
                query_pre_attn_scalar=14,
                layer_types=["sliding_attention", "full_attention"],
            ),
            vision_config=dict(
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                image_size=16,
                patch_size=8,
            ),
            mm_tokens_per_image=4,
            image_token_index=140,
            boi_token_index=141,
            eoi_token_index=142,
            eos_token_id=[2, 3],
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # The same with the number that all models in use have, which GGUF files leave unsaid.
    "smollm3-fourth": (
        t.SmolLM3ForCausalLM,
        t.SmolLM3Config(**(SMALL | dict(num_hidden_layers=4)), tie_word_embeddings=True),
        torch.bfloat16,
        WHOLE,
    ),
    # Matrices of eight bits with a scale for each block, as DeepSeek and Qwen publish them.
    "qwen3-fp8-blocks": (
        t.Qwen3ForCausalLM,
        t.Qwen3Config(
            **(SMALL | dict(hidden_size=64, intermediate_size=128)),
            head_dim=16,
            tie_word_embeddings=True,
        ),
        torch.bfloat16,
        WHOLE,
    ),
    # The same with a scale for each row, or for a whole matrix, as compressed-tensors writes them.
    "llama-fp8-rows": (
        t.LlamaForCausalLM,
        t.LlamaConfig(**(SMALL | dict(intermediate_size=64)), tie_word_embeddings=False),
        torch.bfloat16,
        WHOLE,
    ),
}
