"""Make the reference of beam searches that `host/engine/tests/beams.rs` checks.

    pip install torch==2.11.0 transformers==5.23.0 safetensors
    python tests/parity/make_beams.py

Reads the tiny models and prompts that `make_reference.py` wrote and writes `beams.json`: what
`generate` returns for them with several sizes, length penalties and ways to stop. The models end
texts seldom, so some more tokens end them here. A search is kept only if it comes out the same in
double precision: where two beams are as good as equal, another order of additions could choose
otherwise.
"""

import json
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from make_reference import DATA, read_back
from models import MODELS

NAMES = ("llama-rope-scaled", "qwen3-qk-norm", "mistral-window", "gemma2-soft-caps")
STOP_TOKENS = [2, 3, 10, 20, 30, 40]
# Beams, results, length penalty, early stopping, tokens.
SEARCHES = (
    (1, 1, 1.0, False, 24),
    (2, 2, 1.0, False, 24),
    (4, 3, 1.0, True, 24),
    (4, 4, 0.0, "never", 24),
    (3, 3, 2.0, "never", 20),
    (4, 4, -1.0, False, 20),
    (5, 2, 0.5, False, 40),
)


def search(model, prompt, beams, results, length_penalty, early_stopping, tokens):
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        num_beams=beams,
        num_return_sequences=results,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        max_new_tokens=tokens,
        eos_token_id=STOP_TOKENS,
        pad_token_id=0,
        use_cache=False,
    )
    return [cut(row[len(prompt):].tolist()) for row in output]


def cut(tokens):
    """Up to and with the first token that ends the text."""
    ends = [index for index, token in enumerate(tokens) if token in STOP_TOKENS]
    return tokens[: ends[0] + 1] if ends else tokens


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    found, left_out = [], 0
    for name in NAMES:
        architecture = MODELS[name][0]
        model = read_back(architecture, DATA / name)
        exact = read_back(architecture, DATA / name).double()
        tensors = load_file(DATA / name / "reference.safetensors")
        for index in range(3):
            prompt = tensors[f"prompt.{index}"].tolist()
            for parameters in SEARCHES:
                with torch.no_grad():
                    results = search(model, prompt, *parameters)
                    if search(exact, prompt, *parameters) != results:
                        left_out += 1
                        continue
                beams, _, length_penalty, early_stopping, tokens = parameters
                found.append({
                    "model": name,
                    "prompt": index,
                    "beams": beams,
                    "length_penalty": length_penalty,
                    "early_stopping": early_stopping,
                    "max_tokens": tokens,
                    "results": results,
                })
    lines = ",\n".join(json.dumps(one) for one in found)
    stop_tokens = json.dumps(STOP_TOKENS)
    (DATA.parent / "beams.json").write_text(f'{{"stop_tokens": {stop_tokens}, "searches": [\n{lines}\n]}}\n')
    print(f"{len(found)} searches, {left_out} left out")


if __name__ == "__main__":
    main()
