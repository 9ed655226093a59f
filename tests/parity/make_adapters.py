"""Make LoRA adapters of the tiny models, and the reference values that `host/model/tests/lora.rs` checks.

    pip install torch==2.15.0 transformers==5.23.0 peft==0.21.2 gguf==0.19.0 safetensors compressed-tensors
    python tests/parity/make_adapters.py

Reads the models and prompts that `make_reference.py` wrote. Every adapter is written below
`tests/parity/adapters` as `peft` saves it:

    NAME/adapter_config.json, NAME/adapter_model.safetensors
    NAME/reference.safetensors  `prompt_logits.i`, [prompt, vocabulary], for the prompts 0, 1 and 2 of the base
    NAME.gguf                   the same adapter as llama.cpp's converter writes it, for some

`peft` itself reads the adapters back, and the logits are computed in float32, the base's weights as stored.
"""

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from make_reference import DATA as PARITY, read_back
from models import MODELS

ADAPTERS = Path(__file__).parent / "adapters"

# Name: base, settings, type of the stored numbers.
CASES = {
    # What most adapters adapt.
    "llama-queries": (
        "llama-rope-scaled",
        dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
        torch.float32,
    ),
    # Everything, so that batches mix ranks and modules.
    "llama-all": (
        "llama-rope-scaled",
        dict(r=3, lora_alpha=7, target_modules="all-linear"),
        torch.bfloat16,
    ),
    # Scaled by the root of the rank; biases and an odd number of heads in the base.
    "qwen2-root": (
        "qwen2-bias",
        dict(r=4, lora_alpha=6, use_rslora=True, target_modules=["k_proj", "o_proj", "up_proj"]),
        torch.float16,
    ),
    # A pattern, and ranks and alphas of their own; norms behind both branches of a layer.
    "gemma2-patterns": (
        "gemma2-soft-caps",
        dict(
            r=4,
            lora_alpha=8,
            target_modules=r".*\.layers\.\d+\.(self_attn\.(q|o)_proj|mlp\.(gate|down)_proj)",
            rank_pattern={"down_proj": 2, r"layers\.1\.self_attn\.q_proj": 7},
            alpha_pattern={"o_proj": 3, "model.layers.0.mlp.gate_proj": 5},
        ),
        torch.float32,
    ),
    # One layer of three.
    "mistral-one-layer": (
        "mistral-plain",
        dict(r=16, lora_alpha=8, target_modules=["q_proj", "v_proj", "up_proj"], layers_to_transform=[1]),
        torch.float32,
    ),
    # Matrices that are stacked on disk too.
    "phi3-stacked": (
        "phi3-longrope-short",
        dict(r=5, lora_alpha=10, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
        torch.float32,
    ),
    # Norms on queries and keys.
    "qwen3-all": (
        "qwen3-qk-norm",
        dict(r=6, lora_alpha=6, target_modules="all-linear"),
        torch.float32,
    ),
    # The attention of a model with experts.
    "qwen3-moe-attention": (
        "qwen3-moe-shares",
        dict(r=4, lora_alpha=12, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
        torch.float32,
    ),
}
# Architecture in GGUF.
AS_GGUF = {"llama-all": "llama", "phi3-stacked": "phi3", "qwen3-all": "qwen3"}
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def permuted(rows, heads):
    """Rotary pairs side by side, as llama.cpp has Llama's queries and keys: of an adapter, the second matrix."""
    shape = rows.shape
    halves = rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:])
    return halves.swapaxes(1, 2).reshape(shape)


def write_gguf(name, architecture, config, alpha):
    writer = gguf.GGUFWriter(ADAPTERS / f"{name}.gguf", architecture)
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, float(alpha))
    for tensor, values in sorted(load_file(ADAPTERS / name / "adapter_model.safetensors").items()):
        path = tensor.removeprefix("base_model.model.model.layers.").removesuffix(".weight")
        layer, part = path.split(".", 1)
        part, side = part.rsplit(".", 1)
        rows = values.float().numpy()
        if side == "lora_B" and architecture == "llama" and part.endswith(("q_proj", "k_proj")):
            heads = config.num_attention_heads if part.endswith("q_proj") else config.num_key_value_heads
            rows = permuted(rows, heads)
        writer.add_tensor(f"blk.{layer}.{NAMES[part]}.weight.{side.lower()}", np.ascontiguousarray(rows))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name, seed):
    base, settings, dtype = CASES[name]
    architecture, config, _, _ = MODELS[base]
    torch.manual_seed(seed)
    folder = ADAPTERS / name
    shutil.rmtree(folder, ignore_errors=True)
    model = get_peft_model(read_back(architecture, PARITY / base), LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            if "lora_" in parameter:
                values.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    settings_file = folder / "adapter_config.json"
    saved = json.loads(settings_file.read_text())
    settings_file.write_text(json.dumps(saved | {"base_model_name_or_path": base}, indent=2) + "\n")
    path = folder / "adapter_model.safetensors"
    save_file({tensor: values.to(dtype) for tensor, values in load_file(path).items()}, path)

    plain = read_back(architecture, PARITY / base)
    adapted = PeftModel.from_pretrained(read_back(architecture, PARITY / base), folder).eval()
    prompts = load_file(PARITY / base / "reference.safetensors")
    tensors = {}
    for index in range(3):
        prompt = prompts[f"prompt.{index}"][None]
        with torch.no_grad():
            logits = adapted(prompt).logits[0].contiguous()
            change = (logits - plain(prompt).logits[0]).abs().max() / logits.abs().max()
        assert change > 0.05, f"{name} changes the logits by {change}"
        tensors[f"prompt_logits.{index}"] = logits
    save_file(tensors, folder / "reference.safetensors")
    if name in AS_GGUF:
        write_gguf(name, AS_GGUF[name], config, settings["lora_alpha"])
    print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


def main():
    torch.set_num_threads(1)
    for seed, name in enumerate(CASES):
        make(name, 300 + seed)


if __name__ == "__main__":
    main()
