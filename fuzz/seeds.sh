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
# The sample, and all examples in it and on the pages.
seed config_toml default < ../host/config/src/default.toml
sed -n 's/^# \(\[.*\|[a-z0-9_]* = .*\)$/\1/p' ../host/config/src/default.toml | seed config_toml commented
grep -l '^```toml' ../README.md ../docs/plugins/*.md | while read -r page; do
  sed -n '/^```toml/,/^```$/{/^```/!p}' "$page" | seed config_toml "$(basename "$page" .md)"
done
# A case for each kind with an embedded plugin; the first byte names the kind.
printf '\000{"a": {"input": {"messages": [{"role": "user", "content": "Hi"}]}, "expect": {}}}' | seed golden_cases template
printf '\001{"a": {"settings": {"format": "hermes"}, "input": {"text": "<think>a</think>b", "split": 3}, "expect": {}}}' |
  seed golden_cases parser
printf '\002{"a": {"input": {"json_schema": {"enum": [1, "b"]}, "texts": ["1", "x"]}, "error": "no"}}' | seed golden_cases grammar
printf '\003{"a": {"input": {"route": "/v1/models", "method": "GET", "peer": "::1", "headers": {}}, "expect": {}}}' |
  seed golden_cases policy
printf '\007data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n' |
  seed upstream_answer content
printf '\100data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}\n\n' |
  seed upstream_answer call
# A component of all kinds, if the tests of the plugin host have built it.
guests=../target/guests/wasm32-wasip2/release/guests.wasm
if [ -f "$guests" ]; then seed plugin_component guests < "$guests"; fi
