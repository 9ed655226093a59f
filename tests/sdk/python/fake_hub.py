"""A hub on this machine that speaks as much of the protocol as huggingface_hub's downloads use."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def blob_id(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def send(self, status, body, headers, with_body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def answer(self, with_body):
        files, path = self.server.files, self.path.split("?")[0]
        if path.startswith("/api/models/org/tiny/tree/"):
            tree = [{"type": "file", "path": name, "size": len(body), "oid": blob_id(body)} for name, body in files.items()]
            return self.send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, with_body)
        if path.startswith("/api/models/org/tiny"):
            siblings = [{"rfilename": name} for name in sorted(files)]
            body = json.dumps({"id": "org/tiny", "modelId": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode()
            return self.send(200, body, {"Content-Type": "application/json"}, with_body)
        if path.startswith("/storage/"):
            body, status, headers = files[path.removeprefix("/storage/")], 200, {"ETag": '"of-the-storage"'}
            if wanted := self.headers.get("Range"):
                start = int(wanted.removeprefix("bytes=").split("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                body, status = body[start:], 206
            return self.send(status, body, headers, with_body)
        for revision in ("main", COMMIT):
            name = path.removeprefix(f"/org/tiny/resolve/{revision}/")
            if name in files:
                break
        else:
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound"}, False)
        body, headers = files[name], {"X-Repo-Commit": COMMIT}
        if len(body) > 1000:  # as files in large file storage are
            headers |= {"X-Linked-Etag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": str(len(body)),
                        "Location": f"http://localhost:{self.server.server_port}/storage/{name}"}
            return self.send(302, b"", headers, False)
        headers["ETag"] = f'"{blob_id(body)}"'
        self.send(200, body, headers, with_body)


def serve(files):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files = files
    return server
