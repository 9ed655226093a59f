"""Make the tiny random-weight models and the reference values that `host/model/tests/parity.rs` checks.

    pip install torch==2.11.0 transformers==5.23.0 safetensors compressed-tensors
    python tests/parity/make_reference.py            # all models of models.py
    python tests/parity/make_reference.py NAME ...   # some of them

Every model is written as a standard Hugging Face folder under `tests/parity/data/NAME`, with a
`reference.safetensors` beside it, for prompts i = 0, 1, 2:

    prompt.i         token ids
    prompt_logits.i  logits of every prompt position, [prompt, vocabulary]
    greedy.i         the greedy continuation, 64 tokens
    decode_logits.i  logits after each of the first 8 tokens of that continuation

The logits are computed in float32 from the weights as stored. The seed is fixed, so that a second
run writes the same values up to the last bits of the machine's float arithmetic.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

from models import MODELS

DATA = Path(__file__).parent / "data"
PROMPT_LENGTHS = (5, 21, 40)
GREEDY_TOKENS = 64
DECODE_STEPS = 8
# Below this distance between the best two logits another order of additions could choose otherwise.
SMALLEST_MARGIN = 1e-3
# Rows and columns that share a scale.
FP8_BLOCK = (16, 64)


def randomise(model):
    """Norms and biases start as ones and zeros, which would hide a mistake."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
            elif name.endswith("sinks"):
                parameter.normal_(0.0, 1.0)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.3)


def quantise_experts(folder):
    """Write other experts, in MXFP4, in place of those of a gpt-oss model: blocks of 16 bytes with
    the numbers 2i in the low and 2i + 1 in the high half, and an exponent for each."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = (experts, outputs, inputs // 32)
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (*blocks, 16), dtype=torch.uint8)
        tensors[f"{name}_scales"] = torch.randint(123, 127, blocks, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
    path.write_text(json.dumps(config, indent=2) + "\n")


def quantise_to_fp8(folder):
    """Write the matrices of all layers with eight bits, and their scales beside them."""
    tensors = load_file(folder / "model.safetensors")
    blocks = "blocks" in folder.name
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weights = tensors[name].float()
        rows, columns = weights.shape
        # Rows and columns of a scale.
        if blocks:
            high, wide = FP8_BLOCK
        else:
            high, wide = rows if "self_attn" in name else 1, columns
        parts = weights.view(rows // high, high, columns // wide, wide)
        scales = parts.abs().amax(dim=(1, 3)) / torch.finfo(torch.float8_e4m3fn).max
        if not blocks:
            # They are read back as numbers of this type times the scales: exact for powers of two.
            scales = torch.exp2(scales.log2().ceil()).to(torch.bfloat16)
        numbers = parts / scales.float()[:, None, :, None]
        tensors[name] = numbers.view(rows, columns).to(torch.float8_e4m3fn)
        if blocks:
            tensors[f"{name}_scale_inv"] = scales
        else:
            tensors[f"{name}_scale"] = scales.view(-1) if high == rows else scales
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = fp8_blocks_config() if blocks else fp8_rows_config()
    path.write_text(json.dumps(config, indent=2) + "\n")


def fp8_blocks_config():
    return {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": list(FP8_BLOCK),
    }


def fp8_rows_config():
    def group(strategy, targets):
        weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy}
        return {"targets": targets, "weights": weights, "input_activations": None}

    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": group("tensor", ["re:.*self_attn.*"]),
            "group_1": group("channel", ["re:.*mlp.*"]),
        },
    }


def read_back(architecture, folder):
    """The model as it was written, in the precision in which it is to be computed."""
    options = {}
    if "mxfp4" in folder.name:
        options["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    if "fp8-blocks" in folder.name:
        options["quantization_config"] = transformers.FineGrainedFP8Config(
            dequantize=True, weight_block_size=FP8_BLOCK
        )
    if "fp8-rows" in folder.name:
        options["quantization_config"] = transformers.CompressedTensorsConfig(run_compressed=False)
    stored = architecture.from_pretrained(folder, dtype=torch.float32, **options).float().eval()
    stored.set_attn_implementation("eager")
    return stored


def continue_greedily(model, tokens):
    """Prompt logits, continuation and logits after its tokens, or None where a choice is too close."""
    prompt_logits = model(torch.tensor([tokens])).logits[0]
    logits, greedy, decode_logits = prompt_logits[-1], [], []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logits, 2).values
        if best[0] - best[1] < SMALLEST_MARGIN:
            return None
        greedy.append(int(logits.argmax()))
        logits = model(torch.tensor([tokens + greedy])).logits[0, -1]
        decode_logits.append(logits)
    return prompt_logits, greedy, decode_logits


def reference(model, vocabulary):
    tensors = {}
    for index, length in enumerate(PROMPT_LENGTHS):
        result = None
        while result is None:
            prompt = torch.randint(4, vocabulary, (length,))
            result = continue_greedily(model, prompt.tolist())
        prompt_logits, greedy, decode_logits = result
        tensors[f"prompt.{index}"] = prompt
        tensors[f"prompt_logits.{index}"] = prompt_logits.contiguous()
        tensors[f"greedy.{index}"] = torch.tensor(greedy)
        tensors[f"decode_logits.{index}"] = torch.stack(decode_logits[:DECODE_STEPS]).contiguous()
    return tensors


def make(name, seed):
    architecture, config, dtype, shard = MODELS[name]
    torch.manual_seed(seed)
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    model = architecture(config)
    randomise(model)
    model = model.to(dtype)
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, temperature=0.7, top_p=0.9, top_k=20, eos_token_id=[2, 3]
    )
    model.save_pretrained(folder, max_shard_size=shard)
    if "mxfp4" in name:
        quantise_experts(folder)
    if "fp8" in name:
        quantise_to_fp8(folder)
    with torch.no_grad():
        vocabulary = config.get_text_config().vocab_size
        tensors = reference(read_back(architecture, folder), vocabulary)
    save_file(tensors, folder / "reference.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(json.dumps({"model": name, "bytes": size, "files": sorted(f.name for f in folder.iterdir())}))


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or list(MODELS)
    for seed, name in enumerate(MODELS):
        if name in wanted:
            make(name, 100 + seed)


if __name__ == "__main__":
    main()
