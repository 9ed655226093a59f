"""Trains the demo model on the generated stream; can stop and resume anywhere."""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import distributed
from tokenizers import Tokenizer

import generate
import vocabulary
import words
from model import Config, DemoModel
from muon import Muon

CHUNK = 512  # samples that are sorted by length together
LONGEST = 1024
WARM_UP = {"copying": 0.35, "calls": 0.25, "sums": 0.2, "asked": 0.1, "facts": 0.1}
MIX = {k: share for k, (_, share) in generate.SKILLS.items()}


# Some machines announce bfloat16 tiles and die of them: asked in a process of its own.
PROBE = """
import time, torch
torch.set_num_threads(1)
def seconds(dtype):
    a, b = torch.randn(2560, 192, dtype=dtype), torch.randn(512, 192, dtype=dtype)
    product = lambda: torch.nn.functional.linear(a, b)
    best = 1.0
    for _ in range(100):
        start = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - start)
    return best
print("bfloat16" if seconds(torch.bfloat16) * 2 < seconds(torch.float32) else "float32")
"""


def fastest_type():
    """bfloat16 where the processor multiplies it at least twice as fast, else float32."""
    answer = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    return "bfloat16" if answer.stdout.strip() == "bfloat16" else "float32"


def batches(tokenizer, seed, chunk, tokens, shares):
    """Batches of one chunk: padded rows of similar length, in random order."""
    rows = []
    for i in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        ids, learn = generate.encode(generate.sample(seed, i, shares), tokenizer)
        if len(ids) <= LONGEST:
            rows.append((ids, learn))
    rows.sort(key=lambda r: len(r[0]))
    out, part = [], []
    for row in rows:
        if part and len(row[0]) * (len(part) + 1) > tokens:
            out.append(part)
            part = []
        part.append(row)
    out.append(part)
    random.Random(chunk).shuffle(out)
    for part in out:
        width = -(-(max(len(ids) for ids, _ in part) - 1) // 16) * 16
        x = torch.zeros(len(part), width, dtype=torch.long)
        y, w = x.clone(), torch.zeros(len(part), width)
        for row, (ids, learn) in enumerate(part):
            n = len(ids) - 1
            x[row, :n], y[row, :n] = torch.tensor(ids[:-1]), torch.tensor(ids[1:])
            w[row, :n] = torch.tensor([1.0 if learnt else -1.0 for learnt in learn[1:]])  # -1: prompt
        yield x, y, w


def stream(path, seed, chunk, tokens, warm_chunks, rank, workers):
    """Every worker has chunks of its own: chunk, chunk + workers, ..."""
    tokenizer = Tokenizer.from_file(str(path))
    words.PIECES = sorted({piece.lower() for piece in tokenizer.get_vocab() if piece.isascii() and piece.isalpha()})
    chunk += rank
    while True:
        for batch in batches(tokenizer, seed, chunk, tokens, WARM_UP if chunk < warm_chunks else MIX):
            yield chunk, batch
        chunk += workers


def average(parameters, workers, left):
    """The mean of all workers' gradients, and of their guesses of the steps left, in one message."""
    flat = torch.cat([q.grad.flatten() for q in parameters] + [torch.tensor([float(left)])])
    distributed.all_reduce(flat)
    flat /= workers
    for q, g in zip(parameters, flat.split([q.numel() for q in parameters] + [1])):
        q.grad.copy_(g.view_as(q))
    return flat[-1].item()


def work(rank, a):
    """One worker; all hold the same weights and take the same steps."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(a.seed)
    if a.workers > 1:
        distributed.init_process_group("gloo", init_method=f"file://{(a.run / 'meet').absolute()}", rank=rank, world_size=a.workers)
    dtype = getattr(torch, a.dtype)
    model = DemoModel(Config(vocab_size=vocabulary.SIZE), dtype=dtype)
    if a.compile:
        for layer in model.model.layers:
            layer.compile(dynamic=True)
    parameters = list(model.parameters())
    matrices = [q for n, q in model.named_parameters() if q.ndim == 2 and "embed" not in n]
    others = [q for n, q in model.named_parameters() if q.ndim != 2 or "embed" in n]
    optimizers = [Muon(matrices, lr=a.lr, weight_decay=0.01, dtype=dtype),
                  torch.optim.AdamW(others, lr=a.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)]
    step, chunk, total, seconds = 0, 0, 0, 0.0
    last = a.run / "last.pt"
    if last.exists():
        state = torch.load(last)
        model.load_state_dict(state["model"])
        for o, s in zip(optimizers, state["optimizers"]):
            o.load_state_dict(s)
        step, total, seconds = state["step"], state["tokens"], state["seconds"]
        chunk = state["chunk"] + a.workers

    def say(line):
        if rank == 0:
            print(line, flush=True)

    def save():
        if rank == 0:
            parts = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step,
                     "chunk": chunk, "tokens": total, "seconds": seconds, "config": vars(model.config)}
            torch.save(parts, a.run / "new.pt")
            (a.run / "new.pt").replace(last)

    say(f"{sum(q.numel() for q in parameters) / 1e6:.2f} M parameters, step {step}, {a.dtype}{', compiled' * a.compile}")
    seen, mean, mark = 0, None, time.time()
    source = stream(a.run / "tokenizer.json", a.seed, chunk, a.tokens, a.warm_chunks, rank, a.workers)
    begin, first, left = time.time(), step, a.steps - step
    while left >= 1:
        chunk, (x, y, w) = next(source)
        chunk -= rank
        w = torch.where(w < 0, 0.1 if step < a.prompt_steps else 0.0, w)
        loss = model.loss(x, y, w)
        loss.backward()
        left = a.steps - step
        if a.minutes and step > first:
            pace = (time.time() - begin) / (step - first)
            left = min(left, (begin + a.minutes * 60 - time.time()) / pace)
        if a.workers > 1:
            left = average(parameters, a.workers, left)
        rate = max(0.0, a.lr * min(1.0, (step + 1) / 50, left / max(a.decay, 1)))
        for o in optimizers:
            for g in o.param_groups:
                g["lr"] = rate
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for o in optimizers:
            o.step()
            o.zero_grad(set_to_none=True)
        step += 1
        left -= 1
        seen += x.numel() * a.workers
        mean = loss.item() if mean is None else 0.97 * mean + 0.03 * loss.item()
        if step % 25 == 0:
            now = time.time()
            seconds, total = seconds + now - mark, total + seen
            say(json.dumps({"step": step, "loss": round(mean, 4), "lr": round(rate, 6), "tokens": total,
                            "rate": round(seen / (now - mark)), "minutes": round(seconds / 60, 1)}))
            seen, mark = 0, now
        if step % 100 == 0:
            save()
    save()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--run", type=Path, default=Path("run"), help="folder of checkpoints")
    p.add_argument("--steps", type=int, default=10000)
    p.add_argument("--decay", type=int, default=4000, help="steps over which the learning rate falls to zero at the end")
    p.add_argument("--minutes", type=float, help="end, with the learning rate at zero, after so much time")
    p.add_argument("--tokens", type=int, default=2560, help="tokens a batch and worker")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--warm-chunks", type=int, default=8, help="chunks of easy copying at the start")
    p.add_argument("--prompt-steps", type=int, default=200, help="steps in which prompts are learnt a little too")
    p.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    p.add_argument("--dtype", choices=("bfloat16", "float32"), help="of activations; default: what is faster here")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=shutil.which("g++") is not None,
                   help="fuse the layers' loops; wants g++ and is the default where that is")
    a = p.parse_args()
    a.dtype = a.dtype or fastest_type()
    a.run.mkdir(parents=True, exist_ok=True)
    (a.run / "meet").unlink(missing_ok=True)
    if not (a.run / "tokenizer.json").exists():
        vocabulary.build().save(str(a.run / "tokenizer.json"))
    torch.multiprocessing.spawn(work, (a,), nprocs=a.workers)


if __name__ == "__main__":
    main()
