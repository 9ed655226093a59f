"""The other side of a comparison: llama.cpp behind the lines that `step_speed` understands."""

import ctypes
import os
import sys
import time

import llama_cpp as ll

BATCH = 512


class Worker:
    def __init__(self, path, threads, flash):
        ll.llama_backend_init()
        silent = ll.llama_log_callback(lambda level, text, data: None)
        self.silent = silent
        ll.llama_log_set(silent, ctypes.c_void_p(0))
        begun = time.monotonic()
        self.model = ll.llama_model_load_from_file(path.encode(), ll.llama_model_default_params())
        assert self.model, "llama.cpp refuses the model"
        self.threads, self.flash = threads, flash
        self.kept = None
        print(f"ready {time.monotonic() - begun:.6f}", flush=True)

    def context(self, streams, tokens):
        params = ll.llama_context_default_params()
        params.n_ctx = (-(-tokens // 256) * 256) * streams
        params.n_batch = params.n_ubatch = BATCH
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = self.flash
        context = ll.llama_init_from_model(self.model, params)
        assert context, "llama.cpp refuses the context"
        return context

    def forward(self, context, streams, position, count):
        batch = ll.llama_batch_init(len(streams) * count, 0, 1)
        batch.n_tokens = len(streams) * count
        for number, stream in enumerate(streams):
            for k in range(count):
                index = number * count + k
                batch.token[index] = (position + k) * 7919 % 2000
                batch.pos[index] = position + k
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = stream
                batch.logits[index] = k + 1 == count
        assert ll.llama_decode(context, batch) == 0, "llama.cpp cannot compute the batch"
        ll.llama_synchronize(context)
        ll.llama_batch_free(batch)

    def filled(self, count, depth, room):
        """A context with streams of so many tokens; kept for the next time. What fills it is not
        measured and has all processors."""
        kept = self.kept
        if not kept or kept["count"] != count or kept["filled"] < depth or kept["room"] < depth + room:
            if kept:
                ll.llama_free(kept["context"])
            context = self.context(count, depth + room)
            ll.llama_set_n_threads(context, self.threads, os.cpu_count())
            for position in range(0, depth, BATCH):
                for stream in range(count):
                    self.forward(context, [stream], position, min(BATCH, depth - position))
            ll.llama_set_n_threads(context, self.threads, self.threads)
            self.kept = dict(context=context, count=count, room=depth + room)
        self.kept["filled"] = depth
        context = self.kept["context"]
        memory = ll.llama_get_memory(context)
        for stream in range(count):
            ll.llama_memory_seq_rm(memory, stream, depth, -1)
        return context

    def measure(self, what, numbers):
        count, depth, tokens = numbers if what == "decode" else (1, 0, numbers[0])
        context = self.filled(count, depth, tokens + 1)
        streams = list(range(count))
        if what == "decode":
            # The first step touches memory for the first time.
            self.forward(context, streams, depth, 1)
        clock, processor = time.monotonic(), time.process_time()
        if what == "decode":
            for step in range(tokens):
                self.forward(context, streams, depth + 1 + step, 1)
        else:
            for position in range(0, tokens, BATCH):
                self.forward(context, [0], position, min(BATCH, tokens - position))
        clock, processor = time.monotonic() - clock, time.process_time() - processor
        print(f"{count * tokens} {clock:.6f} {processor:.6f}", flush=True)


def main():
    path, threads, flash = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    worker = Worker(path, threads, flash)
    for line in sys.stdin:
        what, *numbers = line.split()
        worker.measure(what, [int(number) for number in numbers])


main()
