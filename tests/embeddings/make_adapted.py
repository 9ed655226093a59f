"""Make the reference values of decoders whose rows are pooled, with LoRA adapters, for `host/model/tests/embedder.rs`.

    pip install torch==2.11.0 transformers==5.23.0 peft==0.21.2 safetensors
    python tests/embeddings/make_adapted.py

Reads the models of `tests/parity/data` and adapters of `tests/parity/adapters`. Written below `tests/embeddings/data`:

    qwen3-features      an adapter of a model without a head, as `peft` saves it
    adapted.safetensors for each adapter `NAME.tokens.i` and the pooled rows `NAME.mean.i` and `NAME.last.i`,
                        not normalised, as `transformers` with `peft` computes them
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file

DATA = Path(__file__).parent / "data"
PARITY = DATA.parent.parent / "parity"
FEATURES = "qwen3-features"
# Name: base, folder, whether the adapter was made of a model with a head.
ADAPTERS = {
    "qwen3-all": ("qwen3-qk-norm", PARITY / "adapters/qwen3-all", True),
    "phi3-stacked": ("phi3-longrope-short", PARITY / "adapters/phi3-stacked", True),
    FEATURES: ("qwen3-qk-norm", DATA / FEATURES, False),
}


def base_of(name, head):
    kind = transformers.AutoModelForCausalLM if head else transformers.AutoModel
    return kind.from_pretrained(PARITY / "data" / name, dtype=torch.float32).eval()


def make_features():
    base, folder, _ = ADAPTERS[FEATURES]
    torch.manual_seed(11)
    shutil.rmtree(folder, ignore_errors=True)
    settings = LoraConfig(task_type="FEATURE_EXTRACTION", r=4, lora_alpha=9, target_modules=["q_proj", "v_proj", "down_proj"])
    model = get_peft_model(base_of(base, False), settings)
    with torch.no_grad():
        for parameter, values in model.named_parameters():
            if "lora_" in parameter:
                values.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    saved = json.loads(path.read_text()) | {"base_model_name_or_path": base}
    path.write_text(json.dumps(saved, indent=2) + "\n")


def rows_of(model, tokens, head):
    with torch.no_grad():
        if head:
            return model(torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1][0]
        return model(torch.tensor([tokens])).last_hidden_state[0]


def main():
    torch.set_num_threads(1)
    make_features()
    tensors = {}
    for name, (base, folder, head) in ADAPTERS.items():
        plain = base_of(base, head)
        adapted = PeftModel.from_pretrained(base_of(base, head), folder).eval()
        for index, length in enumerate([1, 7, 40]):
            tokens = [(11 * k + length) % 140 for k in range(length)]
            rows = rows_of(adapted, tokens, head)
            change = (rows - rows_of(plain, tokens, head)).abs().max() / rows.abs().max()
            assert change > 0.05, f"{name} changes the rows by {change}"
            tensors[f"{name}.tokens.{index}"] = torch.tensor(tokens)
            tensors[f"{name}.mean.{index}"] = rows.mean(0).clone()
            tensors[f"{name}.last.{index}"] = rows[-1].clone()
    save_file(tensors, DATA / "adapted.safetensors")


if __name__ == "__main__":
    main()
