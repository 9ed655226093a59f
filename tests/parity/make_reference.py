"""Make the tiny random-weight models and the reference values that `host/model/tests/parity.rs` checks.

    pip install torch==2.11.0 transformers==5.23.0 safetensors
    python tests/parity/make_reference.py

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
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

DATA = Path(__file__).parent / "data"
PROMPT_LENGTHS = (5, 21, 40)
GREEDY_TOKENS = 64
DECODE_STEPS = 8
# Below this distance between the best two logits another order of additions could choose otherwise.
SMALLEST_MARGIN = 1e-3

COMMON = dict(
    vocab_size=144,
    num_hidden_layers=2,
    max_position_embeddings=256,
    initializer_range=0.25,
    bos_token_id=1,
    eos_token_id=[2, 3],
    pad_token_id=0,
)

MODELS = {
    # Untied, llama3 rope scaling whose turning point lies inside the prompt, grouped heads, bf16.
    "llama-rope-scaled": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig(
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
        "5GB",
    ),
    # Attention bias, tied, an odd number of query heads a group, f32.
    "qwen2-bias": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config(
            **COMMON,
            hidden_size=48,
            intermediate_size=72,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
        torch.float32,
        "5GB",
    ),
    # Norms on queries and keys, a head size that is not hidden / heads, tied, f16, two shards.
    "qwen3-qk-norm": (
        transformers.Qwen3ForCausalLM,
        transformers.Qwen3Config(
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
        transformers.MistralForCausalLM,
        transformers.MistralConfig(
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
        "5GB",
    ),
}


def randomise(model):
    """Norms and biases start as ones and zeros, which would hide a mistake."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith(".bias"):
                parameter.normal_(0.0, 0.3)


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


def main():
    torch.set_num_threads(1)
    shutil.rmtree(DATA, ignore_errors=True)
    for seed, (name, (architecture, config, dtype, shard)) in enumerate(MODELS.items()):
        torch.manual_seed(100 + seed)
        folder = DATA / name
        model = architecture(config)
        randomise(model)
        model = model.to(dtype)
        model.generation_config = transformers.GenerationConfig(
            do_sample=True, temperature=0.7, top_p=0.9, top_k=20, eos_token_id=[2, 3]
        )
        model.save_pretrained(folder, max_shard_size=shard)
        # Read back what was written, in the precision in which it is to be computed.
        stored = architecture.from_pretrained(folder, dtype=torch.float32).eval()
        stored.set_attn_implementation("eager")
        with torch.no_grad():
            tensors = reference(stored, config.vocab_size)
        save_file(tensors, folder / "reference.safetensors")
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(json.dumps({"model": name, "bytes": size, "files": sorted(f.name for f in folder.iterdir())}))


if __name__ == "__main__":
    main()
