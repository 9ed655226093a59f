"""Writes the standard Hugging Face files of a checkpoint: export.py RUN MODEL."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

import generate
import vocabulary


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def export(run, folder):
    folder.mkdir(parents=True, exist_ok=True)
    state = torch.load(run / "last.pt")
    c = state["config"]
    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in state["model"].items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)

    tokenizer = Tokenizer.from_file(str(run / "tokenizer.json"))
    tokenizer.save(str(folder / "tokenizer.json"))
    end, stop = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    write(folder, "config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": None, "eos_token_id": stop, "pad_token_id": end, "hidden_act": "silu", "initializer_range": 0.02,
        "hidden_size": c["hidden_size"], "intermediate_size": c["intermediate_size"], "head_dim": c["head_dim"],
        "num_hidden_layers": c["num_hidden_layers"], "num_attention_heads": c["num_attention_heads"],
        "num_key_value_heads": c["num_key_value_heads"], "max_position_embeddings": c["max_position_embeddings"],
        "rms_norm_eps": c["rms_norm_eps"], "rope_theta": c["rope_theta"], "rope_scaling": None, "sliding_window": None,
        "use_sliding_window": False, "max_window_layers": c["num_hidden_layers"], "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": c["vocab_size"]})
    write(folder, "generation_config.json", {"do_sample": False, "eos_token_id": [stop, end], "pad_token_id": end})
    added = {str(tokenizer.token_to_id(t)): {
        "content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": t in vocabulary.SPECIAL}
        for t in vocabulary.SPECIAL + vocabulary.ADDED}
    write(folder, "tokenizer_config.json", {
        "add_bos_token": False, "added_tokens_decoder": added, "bos_token": None, "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "model_max_length": c["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": generate.TEMPLATE})
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{folder}: step {state['step']}, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
