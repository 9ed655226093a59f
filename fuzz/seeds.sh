#!/usr/bin/env bash
# Make the corpora that fuzzing begins with from the files of the tests.
set -euo pipefail
cd "$(dirname "$0")"
seed() { mkdir -p "corpus/$1"; cat > "corpus/$1/$2"; }

for file in ../tests/gguf/data/*.gguf ../tests/embeddings/data/*.gguf; do
  seed gguf "$(basename "$file")" < "$file"
done
for folder in ../tests/parity/data/* ../tests/embeddings/data/tiny-*/; do
  name=$(basename "$folder")
  seed config_json "$name" < "$folder/config.json"
  if [ -f "$folder/model.safetensors" ]; then
    { cat "$folder/config.json"; printf '\0'; cat "$folder/model.safetensors"; } \
      | seed safetensors_folder "$name"
  fi
done
# The smallest of the tokenizers.
seed tokenizer_json demo < ../examples/demo-model/model/tokenizer.json
# A component of all kinds, if the tests of the plugin host have built it.
guests=../target/guests/wasm32-wasip2/release/guests.wasm
if [ -f "$guests" ]; then seed plugin_component guests < "$guests"; fi
