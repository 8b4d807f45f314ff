"""A run of a folder of images, and the review of a run as a process or in this one."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from made_runs import network
from PIL import Image

import autodo
from autodo.data import Examples, load_digits
from autodo.data.folder import load_folder
from autodo.report.pictures import as_picture
from autodo.review.server import Server
from autodo.review.session import Session

SIZE = 40  # of the files; the network sees 8x8
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "<i>seven", "eight", "nine"]


def write_photos(path: Path, digits: Examples, index: range, wrong: int) -> None:
    """Digits as PNG files by class, the first ``wrong`` of them in the folder of the next one."""
    for k, i in enumerate(index):
        label = int(digits.labels[i])
        folder = path / NAMES[(label + 1) % 10 if k < wrong else label]
        folder.mkdir(parents=True, exist_ok=True)
        picture = as_picture(digits.images[i]).resize((SIZE, SIZE), Image.Resampling.NEAREST)
        picture.save(folder / f"{i:04}.png")


def make_folder_run(path: Path) -> Path:
    """PATH/photos/{train,trusted} and PATH/run; 30 of 200 labels are wrong."""
    digits = load_digits()
    write_photos(path / "photos" / "train", digits, range(200), 30)
    write_photos(path / "photos" / "trusted", digits, range(200, 300), 0)
    train = load_folder(path / "photos" / "train", image_size=8)
    trusted = load_folder(path / "photos" / "trusted", image_size=8)
    config = autodo.Config(epochs=20, batch_size=32, lr=0.1, device="cpu")
    source = path / "photos" / "train"
    autodo.fit(
        network(), train, trusted, config=config, out=path / "run", source=source, progress=False
    )
    return path


@contextmanager
def served(run: Path, **origins: Any) -> Iterator[Server]:
    """The review of a run, in a thread."""
    with Session.open(run, **origins) as session, Server(session) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def process(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``autodo review`` as a process of its own, and the link that it printed."""
    started = subprocess.Popen(
        [sys.executable, "-m", "autodo", "review", str(run), *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert started.stdout is not None
    try:
        said = ""
        for line in started.stdout:
            said += line
            if found := re.search(r"http://\S+", line):
                yield started, found[0]
                break
        else:
            raise AssertionError(f"no link was printed: {said}")
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def request(
    link: str, path: str, body: Any = None, *, method: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, headers and body; ``path`` goes out as it is, below the token if it is relative."""
    parts = urlsplit(link)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
    whole = path if path.startswith(("/", "http")) else parts.path + path
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        fields.setdefault("Content-Type", "application/json")
    connection.putrequest(
        method or ("GET" if data is None else "POST"), whole, skip_host="Host" in fields
    )
    for name, value in fields.items():
        connection.putheader(name, value)
    if data is not None and "Content-Length" not in fields:
        connection.putheader("Content-Length", str(len(data)))
    connection.endheaders(data)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content
