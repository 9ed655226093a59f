#!/usr/bin/env python3
"""mortise against llama.cpp, both in one run: models with random weights, A B A B, medians, ratios.

    python3 kernels/bench/compare_llama_cpp.py --write-readme
    python3 kernels/bench/compare_llama_cpp.py [--models ...] [--formats ...] [--work ...] [--json FILE]

The first measures everything that README.md has and writes its table; the second what it is told.

Everything is installed in and made in `--folder` (target/compare-llama-cpp): a virtual environment
with llama-cpp-python, built from PyPI's source with AVX2 and without the instructions that AVX2
machines lack, and the models. `--native` builds for this processor instead and lifts our limit too.

One thread is measured by processor time, which a busy machine disturbs little; several by the clock.
A probe reads memory in the same minute: figures from a machine whose probe is far below that of a
quiet one are lower bounds, and only the ratios mean something.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERSION = "0.3.36"
AVX2 = ("-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON "
        "-DGGML_F16C=ON -DGGML_BMI2=ON")
CMAKE = ("-DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF "
         "-DLLAMA_BUILD_TOOLS=OFF -DLLAVA_BUILD=OFF")
# The longest depth comes first of those: the other begins with what is there already.
WORK = {
    "decode 1": "decode 1 0 16",
    "decode 4": "decode 4 0 6",
    "decode 8": "decode 8 0 4",
    "prefill 512": "prefill 512",
    "depth 4096": "decode 1 4096 8",
    "depth 1024": "decode 1 1024 8",
}
# Beside spinning processes. As many tokens as otherwise: whether llama.cpp's threads get to run at the
# same time changes within a second, so that a few tokens measure the system's luck.
BUSY_WORK = {"decode 1": "decode 1 0 16"}
# Least ratios that we accept, and those that we want.
ASKED = {
    "decode 1": {"Q8_0": (1.15, 1.3), None: (1.3, 1.6)},
    "decode 4": {None: (2.0, 3.0)},
    "decode 8": {None: (2.0, 3.0)},
    "prefill 512": {"Q8_0": (1.2, 1.5), None: (1.5, 2.0)},
    "depth 1024": {None: (1.5, 2.0)},
    "depth 4096": {None: (1.5, 2.0)},
}
ASKED_FLOATS = {
    "decode 1": (1.0, 1.3),
    "decode 4": (2.0, 3.0),
    "decode 8": (2.0, 3.0),
    "prefill 512": (1.0, 1.5),
    "depth 1024": (1.0, 1.3),
    "depth 4096": (1.0, 1.3),
}
ASKED_BUSY = (3.0, 5.0)
README = HERE / "README.md"
BEGIN, END = "<!-- begin of what the script writes -->", "<!-- end of what the script writes -->"


def environment(folder, native):
    """The Python with llama.cpp; installed when it is not there."""
    path = folder / ("venv-native" if native else "venv")
    python = path / "bin" / "python"
    if not python.exists():
        venv.create(path, with_pip=True)
    if subprocess.run([python, "-c", "import llama_cpp, gguf"], capture_output=True).returncode:
        settings = dict(os.environ, CMAKE_ARGS=CMAKE if native else f"{AVX2} {CMAKE}")
        subprocess.run([python, "-m", "pip", "install", "-q", "gguf", "numpy",
                        f"llama-cpp-python=={VERSION}", "--no-binary", "llama-cpp-python"],
                       check=True, env=settings)
    return python


def step_speed():
    """Our side, built as the server is."""
    command = ["cargo", "build", "--release", "-p", "mortise-engine", "--example", "step_speed"]
    subprocess.run(command, check=True, cwd=ROOT)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "examples" / "step_speed"


class Side:
    """A process that measures what it is told."""

    def __init__(self, command, settings=None):
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=settings)
        self.ready = float(self.answer()[1])

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with {self.process.wait()}")
        return line.split()

    def measure(self, work):
        """Tokens, seconds by the clock, seconds of processor time."""
        self.process.stdin.write(work + "\n")
        self.process.stdin.flush()
        tokens, clock, processor = map(float, self.answer())
        return tokens / clock, tokens / processor

    def memory(self):
        """Resident bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["VmRSS"].split()[0]) << 10

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def probe():
    """Bytes a second of processor time that numpy reads, in gigabytes."""
    import numpy as np
    data = np.ones(32 << 20)
    rates = []
    for _ in range(3):
        begun = time.thread_time()
        data.max()
        rates.append(data.nbytes / (time.thread_time() - begun) / 1e9)
    return max(rates)


class Spinners:
    """Processes that keep all processors busy."""

    def __init__(self, count):
        code = "while True: pass"
        self.processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def processor():
    """What it calls itself, and how many there are."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} processors, {names[0] if names else 'of unknown make'}"


def compare(arguments, setting, path, rows):
    """Both sides with one model: a row for each kind of work."""
    threads, spinners = setting["threads"], setting["spinners"]
    by_clock = threads > 1 or spinners
    isa = "avx512-vnni" if arguments.native else "avx2"
    a = Side([arguments.ours, path, threads, isa])
    environment = dict(os.environ)
    if arguments.passive:
        environment["OMP_WAIT_POLICY"] = "passive"
    b = Side([sys.executable, HERE / "llama_cpp_worker.py", path, threads, arguments.flash],
             environment)
    rate = probe()
    print(f"{path.stem}, {threads} threads, {spinners} spinners: ready in {a.ready:.2f} s and "
          f"{b.ready:.2f} s; read probe {rate:.1f} GB/s", flush=True)
    busy = Spinners(spinners)
    for name in setting["work"]:
        work = (BUSY_WORK if spinners else WORK)[name]
        found = {"mortise": [], "llama.cpp": []}
        for _ in range(arguments.rounds):
            for side, key in ((a, "mortise"), (b, "llama.cpp")):
                rates = side.measure(work)
                found[key].append(rates[0] if by_clock else rates[1])
        medians = {key: statistics.median(values) for key, values in found.items()}
        ratios = [x / y for x, y in zip(found["mortise"], found["llama.cpp"])]
        row = dict(model=path.stem, threads=threads, spinners=spinners, work=name, probe=rate,
                   **medians, ratio=medians["mortise"] / medians["llama.cpp"], least=min(ratios),
                   most=max(ratios))
        rows.append(row)
        print(f"  {name:12} mortise {row['mortise']:8.1f}  llama.cpp {row['llama.cpp']:8.1f} t/s  "
              f"ratio {row['ratio']:.2f} ({row['least']:.2f} to {row['most']:.2f})", flush=True)
    busy.end()
    print(f"  resident: mortise {a.memory() >> 20} MiB, file {path.stat().st_size >> 20} MiB")
    a.end()
    b.end()


def asked(row):
    """Gate and goal of a row."""
    if row["spinners"]:
        return ASKED_BUSY
    kind, by_format = row["model"].rsplit("-", 1)[1], ASKED[row["work"]]
    if kind in ("F32", "F16", "BF16"):
        return ASKED_FLOATS[row["work"]]
    return by_format.get(kind, by_format[None])


def table(rows):
    lines = ["| model | work | mortise | llama.cpp | ratio | gate | goal | |",
             "|---|---|---:|---:|---:|---:|---:|---|"]
    for row in rows:
        gate, goal = asked(row)
        reached = ("goal" if row["ratio"] >= goal else "gate" if row["ratio"] >= gate else "**no**")
        lines.append(
            f"| {row['model']} | {row['work']} | {row['mortise']:.1f} | {row['llama.cpp']:.1f} | "
            f"**{row['ratio']:.2f}** ({row['least']:.2f} to {row['most']:.2f}) | {gate} | {goal} | "
            f"{reached} |")
    return "\n".join(lines)


def write_readme(arguments, load, rows):
    """Put the figures in the place that README.md has for them."""
    probes = [row["probe"] for row in rows]
    parts = [
        f"Measured by `compare_llama_cpp.py --write-readme` on {processor()}; medians of "
        f"{arguments.rounds} rounds,\nin brackets the least and the most. The load was {load:.1f} when "
        f"it began, and the read probe of one thread\n{min(probes):.1f} to {max(probes):.1f} GB/s. "
        "Tokens a second; `decode 4` and `decode 8` are the sums of so many\nstreams."]
    for title, wanted in (
            ("One thread, by processor time", lambda row: row["threads"] == 1),
            ("Two threads, by the clock", lambda row: row["threads"] > 1 and not row["spinners"]),
            ("Two threads, by the clock, while two other processes spin",
             lambda row: row["spinners"])):
        parts.append(f"{title}:\n\n{table(list(filter(wanted, rows)))}")
    text = README.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    README.write_text(before + BEGIN + "\n" + "\n\n".join(parts) + "\n" + END + after)


def settings(arguments):
    """What to measure: models, threads, spinning processes and kinds of work."""
    if not arguments.write_readme:
        work = [name for name in arguments.work if not arguments.spinners or name in BUSY_WORK]
        return [dict(models=arguments.models, threads=arguments.threads,
                     spinners=arguments.spinners, work=work)]
    return [
        dict(models=arguments.models, threads=1, spinners=0, work=list(WORK)),
        dict(models=arguments.models[:1], threads=2, spinners=0,
             work=["decode 1", "decode 8", "prefill 512"]),
        dict(models=arguments.models[:1], threads=2, spinners=2, work=["decode 1"]),
    ]


def main():
    # The shapes are known before the environment is there.
    models = ["qwen2.5-0.5b", "qwen3-0.6b", "llama-3.2-1b"]
    formats, floats = ["Q4_0", "Q8_0", "Q4_K_M"], ["F32", "F16", "BF16"]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/compare-llama-cpp")
    parser.add_argument("--models", nargs="+", default=models, choices=models)
    parser.add_argument("--formats", nargs="+", default=formats, choices=formats + floats,
                        help="quantised ones, unless told otherwise")
    parser.add_argument("--work", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--spinners", type=int, default=0,
                        help="busy processes beside; of the kinds of work, decode 1 only")
    parser.add_argument("--write-readme", action="store_true",
                        help="one thread, two, and two beside spinning processes; into README.md")
    parser.add_argument("--native", action="store_true", help="all instructions, on both sides")
    parser.add_argument("--passive", action="store_true", help="llama.cpp's threads sleep, not spin")
    parser.add_argument("--flash", type=int, default=-1, choices=[-1, 0, 1],
                        help="llama.cpp's flash attention: -1 is its default")
    parser.add_argument("--ours", type=pathlib.Path, help="a `step_speed` that is built already")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    python = environment(arguments.folder, arguments.native)
    if not arguments.inside:
        # Again with the Python that has what is needed.
        os.execv(python, [str(python), "-B", __file__, *sys.argv[1:], "--inside"])
    import random_models
    arguments.ours = arguments.ours or step_speed()
    load, begun, rows = os.getloadavg()[0], time.monotonic(), []
    for setting in settings(arguments):
        for shape in setting["models"]:
            for wanted in arguments.formats:
                path = random_models.model(arguments.folder, shape, wanted)
                compare(arguments, setting, path, rows)
                if arguments.json:
                    arguments.json.write_text(json.dumps(rows, indent=1))
    print(f"{(time.monotonic() - begun) / 60:.1f} minutes")
    if arguments.write_readme:
        write_readme(arguments, load, rows)


main()
