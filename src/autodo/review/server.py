"""The review over HTTP, for the person at this machine and nobody else.

It listens on the loopback address alone. Every path begins with a random token, so nothing is
answered to who does not have the printed link, and no cookie speaks for a page that does not.
Names that lead here from elsewhere (DNS rebinding) and requests that another site makes are
refused. No path of a request is ever looked up on the disk.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import socketserver
import sys
from collections.abc import Callable
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from autodo.report import embed
from autodo.report.page import asset
from autodo.review.gallery import NoPicture
from autodo.review.session import Refused, Session

LOOPBACK = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost")
_BODY_BYTES = 4096
_SCRIPTS = ("state", "picture", "grid", "one", "dialogs", "main")
_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the token stands in the address
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Serves one session; ``link`` is the address to print."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, session: Session, port: int = 0) -> None:
        self.session, self.token = session, secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), Handler)

    def server_bind(self) -> None:
        # That of HTTPServer asks the resolver for a name of the address, which may go far.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    @property
    def link(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):  # a tab was closed
            super().handle_error(request, client_address)

    @cached_property
    def style(self) -> bytes:
        return (asset("base.css") + _own("review.css")).encode()

    @cached_property
    def script(self) -> bytes:
        parts = "\n".join(_own(f"{name}.js") for name in _SCRIPTS)
        # In a block of their own, so that a name may stand in base.js too.
        return f'"use strict";\n(() => {{\n{asset("base.js")}\n{{\n{parts}\n}}\n}})();\n'.encode()

    def page(self) -> bytes:
        # Imported here: Jinja comes with torch, and only pages need it.
        from jinja2 import Environment, StrictUndefined

        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        data = self.session.page()
        page = environment.from_string(_own("review.html"))
        return page.render(name=data["name"], json=embed.json_text(data)).encode()


def _own(name: str) -> str:
    return (files("autodo.review") / "assets" / name).read_text(encoding="utf-8")


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "autodo"
    sys_version = ""
    timeout = 120

    def do_GET(self) -> None:
        self._answer(_GET)

    def do_POST(self) -> None:
        self._answer(_POST)

    def _answer(self, routes: dict[str, Callable[..., None]]) -> None:
        try:
            path = self._checked_path()
            for pattern, route in routes.items():
                if found := re.fullmatch(pattern, path):
                    route(self, *found.groups())
                    return
            raise Refused(404, "there is nothing here")
        except Refused as refused:
            self.close_connection = True  # what it sent may lie unread
            self._send(refused.status, f"{refused.reason}\n".encode(), "text/plain; charset=utf-8")

    def _checked_path(self) -> str:
        """The path below the token, if the request comes from where it may."""
        host = self.headers.get_all("Host") or []
        if len(host) != 1 or host[0].rpartition(":")[0] not in _NAMES:
            raise Refused(403, "this page answers to 127.0.0.1 and localhost only")
        origins = self.headers.get_all("Origin") or []
        if any(origin != f"http://{host[0]}" for origin in origins):
            raise Refused(403, "requests of other sites are refused")
        _, token, *rest = [*self.path.partition("?")[0].split("/", 2), ""]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise Refused(403, "use the whole link that autodo review printed")
        if len(rest) < 2:  # "/TOKEN": what the page asks for would go to "/"
            raise Refused(404, "use the whole link, which ends in a slash")
        return rest[0]

    def _page(self) -> None:
        self._send(200, self.server.page(), "text/html; charset=utf-8")

    def _style(self) -> None:
        self._send(200, self.server.style, "text/css; charset=utf-8")

    def _script(self) -> None:
        self._send(200, self.server.script, "text/javascript; charset=utf-8")

    def _state(self) -> None:
        since = re.fullmatch(r"since=([0-9]{1,12})", self.path.partition("?")[2])
        if since is None:
            raise Refused(400, "ask for the state since a line")
        self._send_json(self.server.session.state(int(since[1])))

    def _item(self, index: str) -> None:
        self._send_json(self.server.session.item(int(index)))

    def _image(self, name: str, index: str, size: str) -> None:
        try:
            picture = self.server.session.picture(name, int(index), size)
        except NoPicture as reason:
            raise Refused(404, str(reason)) from None
        self._send(200, picture.data, picture.kind, cache="private, max-age=3600")

    def _decide(self) -> None:
        kind = self.headers.get_content_type()
        length = self.headers.get("Content-Length", "")
        if kind != "application/json" or not re.fullmatch(r"[0-9]{1,6}", length):
            raise Refused(400, "a decision is JSON of known length")
        if int(length) > _BODY_BYTES:
            raise Refused(413, "a decision is short")
        try:
            request = json.loads(self.rfile.read(int(length)))
        except ValueError:
            raise Refused(400, "a decision is JSON") from None
        if not isinstance(request, dict):
            raise Refused(400, "a decision is an object")
        try:
            self._send_json(self.server.session.decide(request))
        except OSError as error:  # the disk is full, or gone
            if isinstance(error, ConnectionError):
                raise
            raise Refused(507, f"not written: {error.strerror or error}") from error

    def _send_json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str, cache: str = "no-store") -> None:
        self.send_response(status)
        for name, value in {
            **_HEADERS,
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": cache,
        }.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a log would show the token."""


_GET: dict[str, Callable[..., None]] = {
    r"": Handler._page,
    r"review\.css": Handler._style,
    r"review\.js": Handler._script,
    r"state": Handler._state,
    r"item/([0-9]{1,12})": Handler._item,
    r"image/(train|trusted)/([0-9]{1,12})/(small|large)": Handler._image,
}
_POST: dict[str, Callable[..., None]] = {r"decide": Handler._decide}
