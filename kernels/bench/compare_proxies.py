#!/usr/bin/env python3
"""What a proxy costs: the same upstream asked directly, through mortise, through nginx and through LiteLLM.

    kernels/bench/compare_proxies.py --mortise target/release/mortise [--nginx nginx] [--litellm VENV/bin/litellm]

The upstream is a mortise whose model says a fixed sentence. A closed loop of connections asks for whole answers,
then for streams. With `--rate`, so many requests a second are asked instead, and one that waits for the answer before
it on its connection counts from when it was due. Processor time is that of the proxy's processes, from /proc, over the
requests of a run; it is what other work on the machine disturbs least. nginx passes bytes on (`proxy_pass`, connections to
the upstream kept, no log, nothing buffered of a stream) and reads no JSON, knows no key and counts nothing: what it costs is the least that a
process between client and upstream can. The servers are asked by turns in each run, and the last columns are the least and the
most of the runs. Needs Linux and Python 3.9, and nothing from PyPI but LiteLLM itself.
"""

import argparse
import asyncio
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEY = "sk-a-key-of-the-benchmark"
NGINX = """
daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000;
    upstream bench {{
        server 127.0.0.1:{upstream};
        keepalive 64;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://bench;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host "127.0.0.1:{upstream}";
            proxy_buffering off;
        }}
    }}
}}
"""
WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def descendants(pid):
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            except OSError:
                pass
    found, wanted = [], [pid]
    while wanted:
        one = wanted.pop()
        found.append(one)
        wanted += [child for child, parent in parents.items() if parent == one]
    return found


def cpu_seconds(pid):
    """Processor time of a process and those below it."""
    total = 0
    for one in descendants(pid):
        try:
            words = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(") ", 1)[1].split()
            total += int(words[11]) + int(words[12])
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


async def answer(reader, writer, request, begun):
    """Send a request, and read its answer; time until it has ended, and events of a stream."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        sys.exit(f"refused: {head!r} {await reader.read(2000)!r}")
    lower, events = head.lower(), 0
    if b"transfer-encoding: chunked" in lower:
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            events += data.count(b"data: ")
            if size == 0:
                break
    else:
        length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
    return time.perf_counter() - begun, events


async def load(port, stream, connections, seconds, rate=None):
    body = json.dumps(
        {"model": "bench", "stream": stream, "messages": [{"role": "user", "content": "Count."}]}
    ).encode()
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    times, events = [], 0
    start = time.perf_counter() + 0.1
    end = start + seconds

    async def client(number):
        nonlocal events
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        due = start + number / rate if rate else None
        while (due or time.perf_counter()) < end:
            begun = time.perf_counter()
            if due and due > begun:
                # Waking up late is not the server's time.
                await asyncio.sleep(due - begun)
                begun = time.perf_counter()
            elif due:
                begun = due
            took, count = await answer(reader, writer, request, begun)
            due = due and due + connections / rate
            times.append(took)
            events += count
        writer.close()

    await asyncio.gather(*[client(number) for number in range(connections)])
    return times, events


def wait_until_ready(port, path, process):
    for _ in range(6000):
        if process.poll() is not None:
            sys.exit("a server has ended; see its output above")
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as probe:
                probe.sendall(f"GET {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode())
                if b" 200 " in probe.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("a server did not become ready")


def servers(options, folder):
    """Name, port and process of the upstream and of each proxy."""
    upstream = free_port()
    quiet = '[log]\nlevel = "warn"\n'
    limits = "[limits]\nmax_queue = 4096\n"
    script = folder / "upstream.toml"
    script.write_text(
        f'{quiet}{limits}[[models]]\nname = "bench"\nbackend = "scripted"\n[models.script]\n'
        f'kind = "conversation"\ndefault = "{WORDS}"\nmax_sequences = 256\n'
    )
    proxy = folder / "proxy.toml"
    proxy.write_text(
        f'{quiet}{limits}[[models]]\nname = "bench"\n[models.upstream]\nurls = ["http://127.0.0.1:{upstream}/v1"]\n'
        f'api = "mortise"\n[[auth.api_keys]]\nid = "bench"\nkey = "{KEY}"\n'
    )
    port = free_port()
    serve = [options.mortise, "serve"]
    started = [
        ("upstream", upstream, [*serve, "--config", script, "--port", str(upstream)], "/ready"),
        ("mortise", port, [*serve, "--config", proxy, "--port", str(port)], "/ready"),
    ]
    if options.nginx:
        port, config = free_port(), folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, upstream=upstream, workers=os.cpu_count()))
        command = [options.nginx, "-c", config, "-p", folder, "-e", folder / "nginx.log"]
        started.append(("nginx", port, command, "/ready"))
    if options.litellm:
        port, config = free_port(), folder / "litellm.yaml"
        config.write_text(
            "model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n"
            f"      api_base: http://127.0.0.1:{upstream}/v1\n      api_key: none\n"
            f"general_settings:\n  master_key: {KEY}\n"
        )
        # Workers that import for longer than the usual 5 seconds are ended and started again, without end.
        patience = ["--timeout_worker_healthcheck", "300"]
        workers = ["--num_workers", str(os.cpu_count())]
        command = [options.litellm, "--config", config, "--port", str(port), *workers, *patience]
        started.append(("litellm", port, command, "/health/liveliness"))
    for name, port, command, path in started:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # LiteLLM's own table of prices, which it would fetch otherwise.
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
        # Known before it is ready, so that it is ended in any case.
        yield name, port, process
        wait_until_ready(port, path, process)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mortise", required=True)
    parser.add_argument("--nginx", help="the program, such as that of Debian's nginx-light")
    parser.add_argument("--litellm")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=float, help="requests a second, in place of a closed loop")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        try:
            for server in servers(options, pathlib.Path(folder)):
                started.append(server)
            print(
                f"{'server':9} {'answers':7} {'a second':>9} {'p50 ms':>8} {'p99 ms':>8} {'CPU us a request':>17} {'a chunk':>8}"
                f" {'CPU, least and most':>20}",
                flush=True,
            )
            for stream in (False, True):
                rows = {name: [] for name, _, _ in started}
                for _, port, _ in started:
                    asyncio.run(load(port, stream, options.connections, 1, options.rate))
                # By turns, so that what else the machine does meets all of them.
                for _ in range(options.runs):
                    for name, port, process in started:
                        before, begun = cpu_seconds(process.pid), time.perf_counter()
                        times, events = asyncio.run(load(port, stream, options.connections, options.seconds, options.rate))
                        took, used = time.perf_counter() - begun, cpu_seconds(process.pid) - before
                        times.sort()
                        rows[name].append((
                            len(times) / took, times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3,
                            used / len(times) * 1e6, used / events * 1e6 if events else float("nan"),
                        ))
                for name, _, _ in started:
                    middle = [statistics.median(column) for column in zip(*rows[name])]
                    used = [row[3] for row in rows[name]]
                    kind = "stream" if stream else "whole"
                    figures = f"{middle[0]:9.0f} {middle[1]:8.2f} {middle[2]:8.2f} {middle[3]:17.0f} {middle[4]:8.1f}"
                    print(f"{name:9} {kind:7} {figures} {min(used):9.0f} to {max(used):7.0f}", flush=True)
        finally:
            for _, _, process in started:
                process.terminate()
            for _, _, process in started:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


if __name__ == "__main__":
    main()
