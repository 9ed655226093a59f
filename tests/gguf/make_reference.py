"""Make the GGUF files and reference values that `host/model/tests/gguf_*.rs` and
`kernels/tests/blocks.rs` check.

    pip install gguf==0.19.0 safetensors numpy torch==2.11.0
    python tests/gguf/make_reference.py

Written below `tests/gguf/data`:

    blocks.safetensors  for each block format, random blocks (`NAME.blocks`, bytes) and the numbers that
                        the `gguf` package says they are (`NAME.values`, f32); `source`, numbers, and
                        `Q8_0.quantised`, what the package quantises them to
    NAME.gguf           a model of `tests/parity/data`, renamed and permuted as llama.cpp's converter
                        does it, with its numbers as stored; its reference values are in that folder
    NAME-q8_0.gguf      the same with the matrices that allow it in Q8_0
    NAME-old.gguf       the same in the layout of older converters: experts, and latent attention's
                        matrices of keys and values, as safetensors files have them
    split/NAME-*.gguf   the same in three files
    tiny-chat.gguf      random weights with a tokenizer and a chat template

The seed is fixed: a second run writes the same bytes.
"""

import json
import re
from pathlib import Path

import gguf
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

HERE = Path(__file__).parent
DATA = HERE / "data"
PARITY = HERE.parent / "parity" / "data"
BLOCKS = 6
FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
           "IQ4_XS", "MXFP4"]
# Where each format has half-precision numbers; random bits there would often be not-a-number.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
          "MXFP4": []}
MODELS = {
    "llama-rope-scaled": "llama",
    "llama-rope-linear": "llama",
    "mistral-window": "llama",
    "ministral3-yarn": "mistral3",
    "mistral-plain": "llama",
    "qwen2-bias": "qwen2",
    "qwen3-qk-norm": "qwen3",
    "gemma-tied": "gemma",
    "gemma2-soft-caps": "gemma2",
    "gemma3-two-ropes": "gemma3",
    "granite-multipliers": "granite",
    "olmo2-norm-after": "olmo2",
    "olmo3-window": "olmo2",
    "phi3-longrope-short": "phi3",
    "phi3-longrope-long": "phi3",
    "smollm3-fourth": "smollm3",
    "mixtral-experts": "llama",
    "qwen2-moe-shared": "qwen2moe",
    "qwen3-moe-mixed": "qwen3moe",
    "qwen3-moe-shares": "qwen3moe",
    "gpt-oss-sinks": "gpt-oss",
    "gpt-oss-mxfp4": "gpt-oss",
    "deepseek-v2-lite": "deepseek2",
    "deepseek-v2-groups": "deepseek2",
    "deepseek-v3": "deepseek2",
}
OLD_LAYOUT = ("mixtral-experts", "deepseek-v2-lite")
# Architectures whose queries and keys llama.cpp's converter permutes.
PERMUTED = ("llama", "granite", "mistral3", "smollm3")


def make_blocks(random):
    tensors = {}
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name]
        _, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in HALVES[name]:
            halves = random.normal(0, 0.1, BLOCKS).astype(np.float16)
            blocks[:, at:at + 2] = halves.reshape(-1, 1).view(np.uint8)
        tensors[f"{name}.blocks"] = blocks
        tensors[f"{name}.values"] = gguf.dequantize(blocks, kind).astype(np.float32)
    source = random.normal(0, 1, (BLOCKS, 32)).astype(np.float32)
    tensors["source"] = source
    tensors["Q8_0.quantised"] = gguf.quantize(source, gguf.GGMLQuantizationType.Q8_0)
    save_file(tensors, DATA / "blocks.safetensors")


def tensors_of(folder):
    """Name, values in single precision or bytes, and how they are stored."""
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                dtype = file.get_slice(name).get_dtype()
                tensor = file.get_tensor(name)
                yield name, (tensor if dtype == "U8" else tensor.float()).numpy(), dtype


def permuted(rows, heads):
    """Rotary pairs side by side, as llama.cpp has Llama's queries and keys."""
    shape = rows.shape
    halves = rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def rope_divisors(config):
    """llama.cpp's converter writes Llama 3's scaling as a tensor."""
    rope = config["rope_parameters"]
    size = config["head_dim"]
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, size, 2, dtype=np.float64) / size)
    waves = 2 * np.pi / frequencies
    context = rope["original_max_position_embeddings"]
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = (context / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(waves < context / high, 1, np.where(waves > context / low, factor, between))
    return divisors.astype(np.float32)


def add_shape(writer, config, architecture):
    """What models of all families have."""
    heads = config["num_attention_heads"]
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    if architecture == "deepseek2":
        return
    writer.add_head_count_kv(config["num_key_value_heads"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(int(head_dim * full.get("partial_rotary_factor", 1.0)))


def add_ropes(writer, config, architecture):
    rope = config["rope_parameters"]
    full = rope.get("full_attention", rope)
    writer.add_rope_freq_base(full["rope_theta"])
    if architecture == "gemma3":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if full.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    if full.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(full["factor"])
        writer.add_rope_scaling_orig_ctx_len(full["original_max_position_embeddings"])
        for field, add in [
                ("attention_factor", writer.add_rope_scaling_yarn_attn_factor),
                ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
                ("beta_slow", writer.add_rope_scaling_yarn_beta_slow)]:
            if full.get(field) is not None:
                add(full[field])
        if full.get("mscale_all_dim") is not None:
            tenth = 0.1 if architecture == "deepseek2" else 1.0
            writer.add_rope_scaling_yarn_log_mul(tenth * full["mscale_all_dim"])
        if full.get("llama_4_scaling_beta") is not None:
            writer.add_attn_temperature_scale(full["llama_4_scaling_beta"])
    if full.get("rope_type") == "longrope":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config["max_position_embeddings"] / original
        if scale > 1:
            writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(original))))


def add_windows(writer, config, architecture):
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "olmo2" and config.get("sliding_window") or architecture == "gemma3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])


def add_experts(writer, config, architecture):
    experts = [config[field] for field in ("num_local_experts", "n_routed_experts", "num_experts") if field in config]
    if not experts:
        return
    writer.add_expert_count(experts[0])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    width = config.get("moe_intermediate_size")
    if width or architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(width or config["intermediate_size"])
    if config.get("shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if architecture == "qwen3moe" and not config["norm_topk_prob"]:
        writer.add_expert_weights_norm(False)
    if architecture == "gpt-oss" and config["swiglu_limit"] != 7.0:
        writer.add_swiglu_clamp_exp([config["swiglu_limit"]] * config["num_hidden_layers"])


def add_latent(writer, config, old):
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    if config.get("q_lora_rank"):
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    key = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    if old:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(key)
        writer.add_value_length(config["v_head_dim"])
    else:
        writer.add_head_count_kv(1)
        writer.add_key_length(config["kv_lora_rank"] + config["qk_rope_head_dim"])
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(key)
        writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    if config["architectures"] == ["DeepseekV3ForCausalLM"]:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if (config.get("n_group") or 1) > 1:
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])


def mxfp4(blocks, scales):
    """Numbers i and i + 16 in byte i instead of 2 i and 2 i + 1, and the scale before them."""
    numbers = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
    packed = numbers[..., :16] | numbers[..., 16:] << 4
    packed = np.concatenate([scales[..., None], packed], axis=-1)
    return packed.reshape(*packed.shape[:2], -1)


def of_gpt_oss(tensors):
    """Gates and ups apart, outputs before inputs, MXFP4 as llama.cpp has it."""
    tensors = {name: (values, dtype) for name, values, dtype in tensors}
    for name, (values, dtype) in tensors.items():
        if name.endswith("_blocks"):
            values, dtype = mxfp4(values, tensors[name.replace("_blocks", "_scales")][0]), "MXFP4"
            name = name.removesuffix("_blocks")
        elif name.endswith("_scales"):
            continue
        elif name.endswith(("gate_up_proj", "down_proj")):
            values = values.swapaxes(1, 2)
        name = name + ".weight" if name.endswith(("_proj", "sinks")) else name.replace("_proj_bias", "_proj.bias")
        if ".gate_up_proj" in name:
            yield name.replace("gate_up_proj", "gate_proj"), values[:, ::2], dtype
            yield name.replace("gate_up_proj", "up_proj"), values[:, 1::2], dtype
        else:
            yield name, values, dtype


def merged(tensors, old):
    """The matrices of a layer's experts as one."""
    experts = {}
    for name, values, dtype in tensors:
        found = re.match(r"model\.layers\.(\d+)\.(mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight", name)
        if not found:
            yield name, values, dtype
            continue
        layer, block, number, part = found.groups()
        if old:
            part = {"w1": "gate", "w2": "down", "w3": "up"}.get(part, part.removesuffix("_proj"))
            yield f"blk.{layer}.ffn_{part}.{number}.weight", values, dtype
            continue
        prefix = f"model.layers.{layer}.mlp" if block == "mlp" else f"layers.{layer}.feed_forward"
        parts = experts.setdefault(f"{prefix}.experts.{part}.weight", {})
        parts[int(number)] = values, dtype
    for name, parts in experts.items():
        yield name, np.stack([parts[number][0] for number in sorted(parts)]), parts[0][1]


def apart(tensors, config):
    """The matrices of keys and values of latent attention, head by head."""
    for name, values, dtype in tensors:
        if not name.endswith("kv_b_proj.weight"):
            yield name, values, dtype
            continue
        plain = config["qk_nope_head_dim"]
        heads = values.reshape(config["num_attention_heads"], -1, values.shape[-1])
        yield name.replace("kv_b_proj", "k_b_proj"), heads[:, :plain].swapaxes(1, 2), dtype
        yield name.replace("kv_b_proj", "v_b_proj"), heads[:, plain:], dtype


def converted(name, values, config, architecture):
    """Values as the files of an architecture have them."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    if architecture in PERMUTED and ".q_proj." in name:
        values = permuted(values, heads)
    if architecture in PERMUTED and ".k_proj." in name:
        values = permuted(values, config["num_key_value_heads"])
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        values = values + np.float32(1)
    # These files do not say how scores are scaled; it is by the size of a head.
    scaled = {"gemma2": ".q_proj.", "gemma3": ".q_norm."}.get(architecture)
    if scaled and scaled in name:
        values = values * np.float32(np.sqrt(head_dim / config["query_pre_attn_scalar"]))
    if name.endswith("shared_expert_gate.weight"):
        values = values.reshape(-1)
    return np.ascontiguousarray(values)


def make_model(name, architecture, layout=""):
    config = json.loads((PARITY / name / "config.json").read_text())
    old, quantised = layout == "old", layout == "q8_0"
    path = DATA / f"{name}{'-' if layout else ''}{layout}.gguf"
    if layout == "split":
        path = DATA / "split" / f"{name}.gguf"
        path.parent.mkdir(exist_ok=True)
    tensors = list(tensors_of(PARITY / name))
    if architecture == "gpt-oss":
        tensors = list(of_gpt_oss(tensors))
    tensors = list(merged(tensors, old))
    if architecture == "deepseek2" and not old:
        tensors = list(apart(tensors, config))
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=(len(tensors) + 2) // 3 if layout == "split" else 0)
    writer.add_name(name)
    add_shape(writer, config, architecture)
    add_ropes(writer, config, architecture)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    add_windows(writer, config, architecture)
    for field, add in [
            ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
            ("final_logit_softcapping", writer.add_final_logit_softcapping),
            ("logits_scaling", writer.add_logit_scale),
            ("embedding_multiplier", writer.add_embedding_scale),
            ("residual_multiplier", writer.add_residual_scale),
            ("attention_multiplier", writer.add_attention_scale)]:
        if config.get(field) is not None:
            add(config[field])
    add_experts(writer, config, architecture)
    if architecture == "deepseek2":
        add_latent(writer, config, old)
    ends = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(ends[0])
    writer.add_eot_token_id(ends[1])
    model = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    # The package knows no dense layers in Qwen3-MoE, whose configuration allows them.
    known = [gguf.get_tensor_name_map(model, config["num_hidden_layers"])
             for model in (model, gguf.MODEL_ARCH.LLAMA)]
    for original, values, dtype in tensors:
        original = original.replace("e_score_correction_bias", "e_score_correction.bias")
        names = (names.get_name(original, try_suffixes=(".weight", ".bias")) for names in known)
        renamed = original if original.startswith("blk.") else next(name for name in names if name)
        if dtype == "MXFP4":
            writer.add_tensor(renamed, np.ascontiguousarray(values), raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            continue
        values = converted(original, values, config, architecture)
        kind = gguf.GGMLQuantizationType[dtype]
        if values.ndim == 1 or original.endswith(".bias") or architecture == "gemma2" and ".q_proj." in original:
            # Vectors are always in single precision there.
            kind = gguf.GGMLQuantizationType.F32
        elif quantised and values.shape[-1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
        if kind != gguf.GGMLQuantizationType.F32:
            values = gguf.quantize(values, kind)
        writer.add_tensor(renamed, values, raw_dtype=kind)
    rope = config["rope_parameters"]
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config))
    for length in ("short", "long"):
        if factors := rope.get(f"{length}_factor"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(factors, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def make_chat(random):
    """Random weights with a tokenizer and a chat template: what a server needs."""
    entries = json.loads((DATA / "tokenizers.json").read_text())
    vocabulary = next(entry["vocabulary"] for entry in entries if entry["name"] == "qwen2")
    hidden, wide, heads, layers, tokens = 64, 128, 4, 2, len(vocabulary["tokens"])
    writer = gguf.GGUFWriter(DATA / "tiny-chat.gguf", "qwen2")
    writer.add_context_length(512)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads // 2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model(vocabulary["model"])
    writer.add_tokenizer_pre(vocabulary["pre"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_eos_token_id(vocabulary["eos"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

    def matrix(name, outputs, inputs):
        values = random.normal(0, 0.3 / np.sqrt(inputs) * 4, (outputs, inputs)).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", gguf.quantize(values, kind), raw_dtype=kind)

    def vector(name, size, value):
        writer.add_tensor(name, np.full(size, value, dtype=np.float32))

    matrix("token_embd", tokens, hidden)
    vector("output_norm.weight", hidden, 1)
    for layer in range(layers):
        for name, outputs, inputs in [
                ("attn_q", hidden, hidden), ("attn_k", hidden // 2, hidden), ("attn_v", hidden // 2, hidden),
                ("attn_output", hidden, hidden), ("ffn_gate", wide, hidden), ("ffn_up", wide, hidden),
                ("ffn_down", hidden, wide)]:
            matrix(f"blk.{layer}.{name}", outputs, inputs)
        for name, size in [("attn_q", hidden), ("attn_k", hidden // 2), ("attn_v", hidden // 2)]:
            vector(f"blk.{layer}.{name}.bias", size, 0)
        vector(f"blk.{layer}.attn_norm.weight", hidden, 1)
        vector(f"blk.{layer}.ffn_norm.weight", hidden, 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    make_blocks(np.random.default_rng(20251121))
    for name, architecture in MODELS.items():
        make_model(name, architecture)
    make_model("llama-rope-scaled", "llama", "q8_0")
    make_model("mixtral-experts", "llama", "split")
    for name in OLD_LAYOUT:
        make_model(name, MODELS[name], "old")
    # After `make_tokenizers.py`.
    make_chat(np.random.default_rng(20251122))
