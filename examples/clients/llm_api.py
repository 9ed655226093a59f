"""The API below /api/v1/llm from Python, with nothing but its standard library.

    python llm_api.py [URL [MODEL [EMBEDDING_MODEL [ADMIN_KEY [COLLECTION]]]]]

A collection is a vector store of /v1/vector_stores, by its name or its id.
"""

import json
import sys
import urllib.error
import urllib.request


class LlmError(Exception):
    """An error as the API tells it."""

    def __init__(self, status, error):
        super().__init__(f"{status} {error['code']}: {error['message']}")
        self.status, self.code, self.details = status, error["code"], error.get("details", {})


class Llm:
    """A client. `key` is a key of the API, `admin_key` that of the admin side."""

    def __init__(self, url, key=None, admin_key=None):
        self.url, self.headers = url.rstrip("/") + "/api/v1/llm", {}
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        if admin_key:
            self.headers["X-Admin-Token"] = admin_key

    def _open(self, path, body=None):
        headers, data = dict(self.headers), None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, headers)
        try:
            return urllib.request.urlopen(request, timeout=300)
        except urllib.error.HTTPError as error:
            raise LlmError(error.code, json.load(error)["error"]) from None

    def get(self, path):
        with self._open(path) as answer:
            return json.load(answer)

    def post(self, path, **body):
        with self._open(path, body) as answer:
            return json.load(answer)

    def stream(self, path, **body):
        """Pieces of the text, and at last the object with the figures."""
        with self._open(path, body | {"stream": True}) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise LlmError(answer.status, event["error"])
                    yield event


def main(url="http://127.0.0.1:8080", model="mortise-demo", embedding_model=None, admin_key=None,
         collection=None):
    llm = Llm(url, admin_key=admin_key)
    answer = llm.post("inference", prompt="What is ThemisDB?", model=model, max_tokens=100,
                      temperature=0.7, top_p=0.9, top_k=40, stop_sequences=["\n\n", "END"])
    print(answer["text"], answer["tokens_generated"], answer["finish_reason"])
    for event in llm.stream("inference", prompt="Write a story about…", model=model, max_tokens=64):
        print(event.get("token", f"[{event.get('tokens_generated')} tokens]"), end="", flush=True)
    print()
    if embedding_model:
        made = llm.post("embed", text="Sample text for embedding generation", model=embedding_model,
                        normalize=True)
        print("dimension", made["dimension"], made["embedding"][:3])
    if collection:
        answer = llm.post("rag", query="Contract provisions in clause 3.4", collection=collection, top_k=5,
                          similarity_threshold=-1, model=model)
        print(answer["text"], "from", [source["filename"] for source in answer["sources"]])
    for row in llm.get("models")["models"]:
        print(row["model_id"], row["status"], row["size_bytes"])
    print(llm.get(f"models/{model}")["architecture"])
    try:
        llm.post("inference", prompt="p", model="invalid-model")
    except LlmError as error:
        print(error, error.details["available_models"])
    print("requests", llm.get("stats")["total_requests"])
    print("prefix hits", llm.get("cache/stats")["prefix_cache"]["hits"])
    print("workers", len(llm.get("workers")["workers"]))
    print(llm.get("health")["status"])
    if admin_key:
        print(llm.post("models/unload", model_id=model)["status"])
        print(llm.post("models/load", model_id=model)["status"])
        print("cleared", llm.post("cache/clear", cache_type="prefix")["cleared"])


if __name__ == "__main__":
    main(*sys.argv[1:])
