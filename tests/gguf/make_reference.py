"""Make the GGUF files and reference values that `host/model/tests/gguf_*.rs` and
`kernels/tests/blocks.rs` check.

    pip install gguf==0.19.0 safetensors numpy
    python tests/gguf/make_reference.py

Written below `tests/gguf/data`:

    blocks.safetensors  for each block format, random blocks (`NAME.blocks`, bytes) and the numbers that
                        the `gguf` package says they are (`NAME.values`, f32); `source`, numbers, and
                        `Q8_0.quantised`, what the package quantises them to
    NAME.gguf           a model of `tests/parity/data`, renamed and permuted as llama.cpp's converter
                        does it, with its numbers as stored; its reference values are in that folder
    NAME-q8_0.gguf      the same with the matrices that allow it in Q8_0
    tiny-chat.gguf      random weights with a tokenizer and a chat template

The seed is fixed: a second run writes the same bytes.
"""

import json
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
    "mistral-plain": "llama",
    "qwen2-bias": "qwen2",
    "qwen3-qk-norm": "qwen3",
    "gemma-tied": "gemma",
    "gemma2-soft-caps": "gemma2",
    "granite-multipliers": "granite",
    "olmo2-norm-after": "olmo2",
    "phi3-longrope-short": "phi3",
}
# Architectures whose queries and keys llama.cpp's converter permutes.
PERMUTED = ("llama", "granite")


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
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "numpy") as file:
            for name in file.keys():
                dtype = file.get_slice(name).get_dtype()
                if dtype == "BF16":
                    import torch  # numpy has no bf16
                    with safe_open(path, "pt") as same:
                        bits = same.get_tensor(name).view(torch.uint16).numpy()
                    yield name, bits, "BF16"
                else:
                    yield name, file.get_tensor(name), dtype


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


def make_model(name, architecture, quantised):
    config = json.loads((PARITY / name / "config.json").read_text())
    heads = config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    suffix = "-q8_0" if quantised else ""
    writer = gguf.GGUFWriter(DATA / f"{name}{suffix}.gguf", architecture)
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    for field, add in [
            ("attn_logit_softcapping", writer.add_attn_logit_softcapping),
            ("final_logit_softcapping", writer.add_final_logit_softcapping),
            ("logits_scaling", writer.add_logit_scale),
            ("embedding_multiplier", writer.add_embedding_scale),
            ("residual_multiplier", writer.add_residual_scale),
            ("attention_multiplier", writer.add_attention_scale)]:
        if config.get(field) is not None:
            add(config[field])
    if config["rope_parameters"].get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
    ends = config["eos_token_id"]
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(ends[0])
    writer.add_eot_token_id(ends[1])
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config["num_hidden_layers"])
    for original, values, dtype in tensors_of(PARITY / name):
        renamed = known.get_name(original, try_suffixes=(".weight", ".bias"))
        if architecture in PERMUTED and ".q_proj." in original:
            values = permuted(values, heads)
        if architecture in PERMUTED and ".k_proj." in original:
            values = permuted(values, kv_heads)
        kind = gguf.GGMLQuantizationType[dtype]
        if architecture == "gemma2" and ".q_proj." in original:
            # These files do not say how scores are scaled; it is by the size of a head.
            single = gguf.dequantize(values.view(np.uint8), kind).astype(np.float32).reshape(values.shape)
            values = single * np.float32(np.sqrt(head_dim / config["query_pre_attn_scalar"]))
            dtype, kind = "F32", gguf.GGMLQuantizationType.F32
        if values.ndim == 1 and dtype != "F32":
            # Vectors are always in single precision there.
            values = gguf.dequantize(values.view(np.uint8), kind) if dtype == "BF16" else values
            values, kind = values.astype(np.float32).reshape(values.shape[-1]), gguf.GGMLQuantizationType.F32
            if architecture.startswith("gemma") and original.endswith("norm.weight"):
                values = values + np.float32(1)
        elif quantised and values.ndim == 2 and values.shape[1] % 32 == 0:
            single = gguf.dequantize(values.view(np.uint8), kind).astype(np.float32)
            kind = gguf.GGMLQuantizationType.Q8_0
            values = gguf.quantize(single.reshape(values.shape), kind)
        elif dtype == "BF16":
            values = values.view(np.uint8)
        writer.add_tensor(renamed, np.ascontiguousarray(values), raw_dtype=kind)
    if config["rope_parameters"].get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config))
    for length in ("short", "long"):
        factors = config["rope_parameters"].get(f"{length}_factor")
        if factors:
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
        make_model(name, architecture, quantised=False)
    make_model("llama-rope-scaled", "llama", quantised=True)
    # After `make_tokenizers.py`.
    make_chat(np.random.default_rng(20251122))
