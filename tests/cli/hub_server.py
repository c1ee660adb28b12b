"""A Hugging Face server of one process: the few endpoints that fetching a file needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "c" * 40


@dataclass
class HubServer:
    """What is served, and what was asked for.

    repos: repository -> file -> content. refusals: repository -> (status, error code).
    """

    endpoint: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    downloads: list[str] = field(default_factory=list)


@contextmanager
def serve_hub(**repos: dict[str, bytes]) -> Iterator[HubServer]:
    """Serves on a free loopback port until the block ends."""
    hub = HubServer(repos=repos)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(send_body=True)

        def do_HEAD(self) -> None:
            self.answer(send_body=False)

        def answer(self, send_body: bool) -> None:
            path = self.path.partition("?")[0].strip("/")
            repo, file = _asked(path)
            hub.tokens.add(self.headers.get("Authorization", ""))
            if repo in hub.refusals:
                status, code = hub.refusals[repo]
                self.reply(status, b"", {"X-Error-Code": code})
            elif repo not in hub.repos:
                self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
            elif file is None:
                self.reply(200, _info(repo, hub.repos[repo]), {}, send_body)
            elif file not in hub.repos[repo]:
                self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
            else:
                content = hub.repos[repo][file]
                if send_body:
                    hub.downloads.append(file)
                etag = hashlib.sha256(content).hexdigest()
                headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
                self.reply(200, content, headers, send_body)

        def reply(
            self, status: int, body: bytes, headers: dict[str, str], send_body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if send_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Tests are quiet."""

    return Handler


def _asked(path: str) -> tuple[str, str | None]:
    """(repository, file or None for its description) of a request path."""
    if path.startswith("api/models/"):
        return "/".join(path.split("/")[2:4]), None
    repo, _, rest = path.partition("/resolve/")
    return repo, rest.partition("/")[2]


def _info(repo: str, files: dict[str, bytes]) -> bytes:
    siblings = [{"rfilename": name} for name in files]
    return json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}).encode()
