#!/usr/bin/env bash
# Tests and measures the CUDA path on a machine with a GPU that was not built there and has no network.
#
#   kernels/bench/gpu.sh pack     here: builds with the feature `cuda` and puts what is needed into
#                                 .gpu/ (about 30 MB; fetch the compiler first: kernels/cuda/fetch-toolkit)
#   kernels/bench/gpu.sh run      there, in a copy of the clone with .gpu/: the tests of all ops and of
#                                 the decoder on the GPU, then the speed of decoding, as JSON
#   kernels/bench/gpu.sh decode   there: the speed alone
#
# The binaries carry the kernels. They take from the machine: libcuda of the driver (580 or later, that
# is CUDA 13), and, for products of many rows, libcublasLt.so.13, which a Python environment with torch
# has: it is looked for there. MORTISE_GPU_MODELS is where 16 GB of random weights may be written
# (default /tmp/mortise-gpu-models).
set -euo pipefail
cd "$(dirname "$0")/../.."

pack() {
  rm -rf .gpu && mkdir .gpu
  # The paths of what cargo built, by name.
  local built
  built=$(cargo build --release --message-format=json --features mortise-cuda/cuda \
      -p mortise-cuda -p mortise-model --tests --examples; \
    cargo build --release --message-format=json --features cuda -p mortise)
  for name in ops device_parity device_decode mortise; do
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
  export LD_LIBRARY_PATH="${folders//$'\n'/:}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

decode() {
  .gpu/device_decode "${MORTISE_GPU_MODELS:-/tmp/mortise-gpu-models}" "$@"
}

case ${1:-} in
  pack) pack ;;
  run)
    libraries
    .gpu/mortise devices
    CARGO_MANIFEST_DIR=$PWD/kernels/cuda .gpu/ops
    CARGO_MANIFEST_DIR=$PWD/host/model .gpu/device_parity
    decode
    ;;
  decode) libraries; shift; decode "$@" ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
