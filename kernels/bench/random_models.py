"""GGUF files with random weights in the shapes of real models: speed does not depend on the values.

The types of the tensors are those that llama-quantize gives them, with its fallbacks where rows are
no multiple of 256.
"""

import json
import pathlib

import gguf
import numpy as np

DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/demo-model/model"
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TYPES = gguf.GGMLQuantizationType
SHAPES = {
    "qwen2.5-0.5b": dict(arch="qwen2", layers=24, hidden=896, ffn=4864, heads=14, kv_heads=2,
                         head_dim=64, vocabulary=151936, bias=True, rope=1e6),
    "qwen3-0.6b": dict(arch="qwen3", layers=28, hidden=1024, ffn=3072, heads=16, kv_heads=8,
                       head_dim=128, vocabulary=151936, qk_norm=True, rope=1e6),
    "llama-3.2-1b": dict(arch="llama", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8,
                         head_dim=64, vocabulary=128256, rope=5e5),
}
FORMATS = ("Q4_0", "Q8_0", "Q4_K_M")
# Of numbers in floating point all matrices are alike.
FLOATS = ("F32", "F16", "BF16")
# Where blocks keep half-precision scales.
SCALES = {TYPES.Q4_0: [0], TYPES.Q5_0: [0], TYPES.Q8_0: [0], TYPES.Q4_K: [0, 2], TYPES.Q6_K: [208]}


def tensor_type(wanted, name, layer, layers, inputs):
    """What llama-quantize makes of a matrix of tied embeddings, attention or feed-forward."""
    if wanted == "Q8_0" or wanted in FLOATS:
        return TYPES[wanted]
    more_bits = layer is not None and (
        layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2)
    kind = TYPES.Q4_0 if wanted == "Q4_0" else TYPES.Q4_K
    if name == "token_embd" or wanted == "Q4_K_M" and name in ("attn_v", "ffn_down") and more_bits:
        kind = TYPES.Q6_K
    if inputs % 256:
        kind = {TYPES.Q4_K: TYPES.Q5_0, TYPES.Q6_K: TYPES.Q8_0}.get(kind, kind)
    return kind


def blocks(random, kind, outputs, inputs):
    """Random blocks with small scales, or small numbers, repeated after some megabytes."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    row = inputs // weights * size
    count = min(outputs, max(1, (8 << 20) // row))
    if kind.name in FLOATS:
        values = (random.standard_normal((count, inputs)) * 0.02).astype(np.float32)
        if kind == TYPES.F16:
            values = values.astype(np.float16)
        elif kind == TYPES.BF16:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        data = values.view(np.uint8)
    else:
        data = random.integers(0, 256, (count * (row // size), size), dtype=np.uint8)
        for at in SCALES[kind]:
            scale = np.float16(0.02 / (32 * 64 if kind in (TYPES.Q4_K, TYPES.Q6_K) else 32))
            data[:, at:at + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    repeated = np.tile(data.reshape(count, row), (-(-outputs // count), 1))
    return repeated[:outputs]


def vocabulary(writer, size):
    """The demo model's tokenizer and a chat template, filled up with words to `size` tokens."""
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    known = tokenizer["model"]["vocab"]
    tokens = sorted(known, key=known.get)
    types = [gguf.TokenType.NORMAL] * len(tokens)
    for token in tokenizer["added_tokens"]:
        tokens.append(token["content"])
        types.append(gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED)
    filled = range(len(tokens), size)
    tokens += [f"\u0120word{number}" for number in filled]
    types += [gguf.TokenType.NORMAL] * len(filled)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair
                             for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def begin(path, s, context):
    """A file that says what shape its model has."""
    writer = gguf.GGUFWriter(str(path), s["arch"])
    writer.add_block_count(s["layers"])
    writer.add_context_length(context)
    writer.add_embedding_length(s["hidden"])
    writer.add_feed_forward_length(s["ffn"])
    writer.add_head_count(s["heads"])
    writer.add_head_count_kv(s["kv_heads"])
    writer.add_key_length(s["head_dim"])
    writer.add_value_length(s["head_dim"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(s["rope"])
    writer.add_rope_dimension_count(s["head_dim"])
    writer.add_vocab_size(s["vocabulary"])
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(path, shape, wanted, chat):
    s = SHAPES[shape]
    random = np.random.default_rng(7)
    writer = begin(path, s, 32768)
    if chat:
        vocabulary(writer, s["vocabulary"])
    else:
        writer.add_tokenizer_model("no_vocab")

    def matrix(name, layer, outputs, inputs):
        kind = tensor_type(wanted, name, layer, s["layers"], inputs)
        prefix = "" if layer is None else f"blk.{layer}."
        writer.add_tensor(f"{prefix}{name}.weight", blocks(random, kind, outputs, inputs),
                          raw_dtype=kind)

    def vector(name, length, value=1.0):
        writer.add_tensor(name, np.full(length, value, dtype=np.float32))

    query, key = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    matrix("token_embd", None, s["vocabulary"], s["hidden"])
    vector("output_norm.weight", s["hidden"])
    for layer in range(s["layers"]):
        for name, outputs, inputs in [
            ("attn_q", query, s["hidden"]), ("attn_k", key, s["hidden"]),
            ("attn_v", key, s["hidden"]), ("attn_output", s["hidden"], query),
            ("ffn_gate", s["ffn"], s["hidden"]), ("ffn_up", s["ffn"], s["hidden"]),
            ("ffn_down", s["hidden"], s["ffn"]),
        ]:
            matrix(name, layer, outputs, inputs)
        for name in ("attn_norm", "ffn_norm"):
            vector(f"blk.{layer}.{name}.weight", s["hidden"])
        if s.get("bias"):
            for name, length in (("attn_q", query), ("attn_k", key), ("attn_v", key)):
                vector(f"blk.{layer}.{name}.bias", length, 0.1)
        if s.get("qk_norm"):
            for name in ("attn_q_norm", "attn_k_norm"):
                vector(f"blk.{layer}.{name}.weight", s["head_dim"])
    finish(writer)


def demo(folder):
    """The demo model as a GGUF file of Q8_0: trained weights, so answers have the lengths of answers."""
    import ml_dtypes  # noqa: F401  numpy knows bfloat16 by it
    from safetensors.numpy import load_file
    path = pathlib.Path(folder) / "demo-Q8_0.gguf"
    if path.exists():
        return path
    config = json.loads((DEMO / "config.json").read_text())
    shape = dict(arch="qwen3", layers=config["num_hidden_layers"], hidden=config["hidden_size"],
                 ffn=config["intermediate_size"], heads=config["num_attention_heads"],
                 kv_heads=config["num_key_value_heads"], head_dim=config["head_dim"],
                 vocabulary=config["vocab_size"], rope=config["rope_theta"])
    writer = begin(path.with_suffix(".unfinished"), shape, config["max_position_embeddings"])
    vocabulary(writer, config["vocab_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for name, values in load_file(DEMO / "model.safetensors").items():
        values, to = values.astype(np.float32), names.get_name(name, try_suffixes=(".weight",))
        if values.ndim == 2:
            values = gguf.quantize(values, TYPES.Q8_0)
            writer.add_tensor(to, values, raw_dtype=TYPES.Q8_0)
        else:
            writer.add_tensor(to, values)
    finish(writer)
    path.with_suffix(".unfinished").rename(path)
    return path


def model(folder, shape, wanted, chat=False):
    """The path of a model, which is made if it is not there. For a server, `chat` adds a tokenizer."""
    path = pathlib.Path(folder) / f"{shape}-{wanted}{'-chat' if chat else ''}.gguf"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        make(unfinished, shape, wanted, chat)
        unfinished.rename(path)
    return path
