#!/usr/bin/env bash
# Make the corpora that fuzzing begins with from the files of the tests, in a folder, `corpus` if none is given.
set -euo pipefail
corpora=$(realpath -m "${1:-$(dirname "$0")/corpus}")
cd "$(dirname "$0")"
seed() { mkdir -p "$corpora/$1"; cat > "$corpora/$1/$2"; }

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
# A byte names the format: marks and words of each.
for format in $(seq 0 44); do
  printf "\\$(printf %o "$format")\\003a \\001\\002x\\003\\177y\\004 z" | seed output_parser "$format"
done
printf '\007data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n' |
  seed upstream_answer content
printf '\100data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}\n\n' |
  seed upstream_answer call
for folder in ../tests/parity/adapters/*/; do
  if [ -f "$folder/adapter_config.json" ]; then
    { cat "$folder/adapter_config.json"; printf '\0'; cat "$folder/adapter_model.safetensors"; } |
      seed adapter "$(basename "$folder")"
  fi
done
{ printf '\040'; cat ../docs/glossary.md; } | seed document markdown
printf '\040<html><head><title>a</title><script>b</script></head><body><p>c &amp; d<pre> e\n f</pre></body>' | seed document html
printf '{"type":"and","filters":[{"type":"gte","key":"a","value":1},{"type":"in","key":"b","value":["c"]}]}\0{"a":2,"b":"c"}' |
  seed vector_filter and
printf '\007--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nb\r\n--B\r\n%s\r\n\r\nc\r\n--B--\r\n' \
  'Content-Disposition: form-data; name="purpose"' | seed form file
key='{"kty":"EC","crv":"P-256","kid":"k","alg":"ES256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}'
printf '{"keys":[%s]}\0{"alg":"ES256","kid":"k"}\0{"iss":"a","aud":"b","sub":"c","exp":9999999999}\0%064d' "$key" 0 |
  seed bearer_token es256
seed plugin_component policy < ../host/bundle/prebuilt/policy.wasm
printf '\001\002ab' | seed plugin_answer bytes
