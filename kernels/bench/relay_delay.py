#!/usr/bin/env python3
"""How long a proxy keeps a piece of a stream: from the upstream's write to the client's read.

    kernels/bench/relay_delay.py --mortise target/release/mortise

The upstream is in this process and writes a piece every so often, with the time in it; clients in this process read the
streams through a mortise with an API key, and directly. Needs Python 3.9, and nothing from PyPI.
"""

import argparse
import asyncio
import json
import pathlib
import subprocess
import tempfile
import time

from compare_proxies import KEY, free_port, wait_until_ready

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}


def event(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = ("data: " + json.dumps({**CHUNK, "choices": [choice]}) + "\n\n").encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


async def upstream(reader, writer, pieces, pause):
    """Answer every request with a stream of pieces that say when they were written."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().split(b"content-length: ")
            if len(length) > 1:
                await reader.readexactly(int(length[1].split(b"\r\n")[0]))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(pieces):
                await asyncio.sleep(pause)
                writer.write(event({"content": f"{time.perf_counter_ns()} "}))
            writer.write(event({}, "stop") + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            await writer.drain()
    except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def client(port, delays):
    body = json.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Count."}]}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n", 1)[0], head
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        now = time.perf_counter_ns()
        if size == 0:
            break
        for line in data.split(b"\n"):
            if line.startswith(b"data: {"):
                content = json.loads(line[6:])["choices"][0]["delta"].get("content")
                delays.extend((now - int(sent)) / 1e6 for sent in (content or "").split())
    writer.close()


async def measure(options, port, through):
    answer = lambda reader, writer: upstream(reader, writer, options.pieces, options.pause_ms / 1000)
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    for name, port in (("direct", port), ("mortise", through)):
        delays = []
        await asyncio.gather(*[client(port, delays) for _ in range(options.streams)])
        delays.sort()
        place = lambda part: delays[int((len(delays) - 1) * part)]
        print(f"{name:8} {len(delays):7} {place(0.5):8.2f} {place(0.99):8.2f} {delays[-1]:8.2f}", flush=True)
    server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mortise", required=True)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--pieces", type=int, default=200)
    parser.add_argument("--pause-ms", type=float, default=20)
    options = parser.parse_args()
    port, through = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "proxy.toml"
        config.write_text(
            f'[log]\nlevel = "warn"\n[[models]]\nname = "bench"\n[models.upstream]\nurls = ["http://127.0.0.1:{port}/v1"]\n'
            f'health_check = "config-only"\n[[auth.api_keys]]\nid = "bench"\nkey = "{KEY}"\n'
        )
        process = subprocess.Popen([options.mortise, "serve", "--config", config, "--port", str(through)])
        try:
            wait_until_ready(through, "/ready", process)
            print(f"{'':8} {'pieces':>7} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8}")
            asyncio.run(measure(options, port, through))
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
