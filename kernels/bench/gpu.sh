#!/usr/bin/env bash
# Tests and measures the CUDA path on a machine with a GPU that was not built there and has no network.
#
#   kernels/bench/gpu.sh pack     here: builds with the feature `cuda` and puts what is needed into
#                                 .gpu/ (about 30 MB; fetch the compiler first: kernels/cuda/fetch-toolkit)
#   kernels/bench/gpu.sh run      there, in a copy of the clone with .gpu/: every op against the
#                                 reference on the GPU, the decoder with all families, FP8 and GGUF
#                                 files, the engine; then the speed of decoding, as JSON
#   kernels/bench/gpu.sh check    there: the tests alone
#   kernels/bench/gpu.sh decode [NAME ...]
#                                 there: the speed alone, of the models named (1b 1b-kv-q8_0 1b-q8_0
#                                 1b-q4_k 8b 8b-fp8 experts experts-q8_0), else of all
#
# The binaries carry the kernels. They take from the machine: libcuda of the driver (580 or later, that
# is CUDA 13), and, for products of many rows, libcublasLt.so.13, which a Python environment with torch
# has: it is looked for there. MORTISE_GPU_MODELS is where 17 GB of random weights may be written
# (default /tmp/mortise-gpu-models).
set -euo pipefail
cd "$(dirname "$0")/../.."

pack() {
  rm -rf .gpu && mkdir .gpu
  # The paths of what cargo built, by name.
  local built
  built=$(cargo build --release --message-format=json --features mortise-cuda/cuda \
      -p mortise-cuda -p mortise-model -p mortise-engine \
      --test device_ops --test device_parity --test device --example device_decode; \
    cargo build --release --message-format=json --features cuda -p mortise)
  for name in device_ops device_parity device device_decode mortise; do
    local path
    path=$(printf '%s\n' "$built" | python3 -c '
import json, sys
name, found = sys.argv[1], None
for line in sys.stdin:
    if line.startswith("{"):
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == name:
            found = message["executable"]
print(found or sys.exit(f"cargo built no {name}"))' "$name")
    strip -o ".gpu/$name" "$path"
  done
  ls -l .gpu
}

libraries() {
  # Of a Python environment, if there is one.
  local folders
  folders=$(python3 -c '
import nvidia, os
for place in nvidia.__path__:
    for folder, _, files in os.walk(place):
        if "libcublasLt.so.13" in files: print(folder)' 2>/dev/null || true)
  [ -z "$folders" ] || export LD_LIBRARY_PATH="${folders//$'\n'/:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

check() {
  .gpu/mortise devices
  # Without it, tests that find no GPU run on the emulator alone.
  export MORTISE_REQUIRE_GPU=1
  CARGO_MANIFEST_DIR=$PWD/kernels/cuda .gpu/device_ops
  CARGO_MANIFEST_DIR=$PWD/host/model .gpu/device_parity
  CARGO_MANIFEST_DIR=$PWD/host/engine .gpu/device
}

decode() {
  .gpu/device_decode "${MORTISE_GPU_MODELS:-/tmp/mortise-gpu-models}" "$@"
}

case ${1:-} in
  pack) pack ;;
  run)
    libraries
    check
    decode
    ;;
  check) libraries; check ;;
  decode) libraries; shift; decode "$@" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
