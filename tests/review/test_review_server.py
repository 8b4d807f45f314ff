"""The server: whom it answers, what it refuses, and what it writes."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from review_runs import process, request, served

from autodo.export.decisions import Decision, read, standing

SECRET = "decisions.jsonl"


def decisions(run: Path) -> list[Decision]:
    return read(run, count=200, num_classes=10)


def json_of(link: str, path: str, body: object = None) -> dict:
    status, _, content = request(link, path, body)
    assert status == 200, content
    return json.loads(content)


# Who is answered


def test_it_listens_on_this_machine_alone(memory_run: Path) -> None:
    with served(memory_run) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert urlsplit(server.link).hostname == "127.0.0.1"
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((own, server.server_port), timeout=5)


PATHS = ["", "review.js", "review.css", "state?since=0", "item/0", "image/train/0/small"]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_the_token(memory_run: Path, path: str) -> None:
    with served(memory_run) as server:
        assert request(server.link, path)[0] == 200
        wrong = server.token[:-1] + ("A" if server.token[-1] != "A" else "B")
        for start in (
            "/",
            f"/{wrong}/",
            f"/{server.token[:-1]}/",
            f"/{server.token}x/",
            "//",
            "/%2F",
        ):
            status, _, content = request(server.link, start + path)
            assert (status, content) == (403, b"use the whole link that autodo review printed\n")
        body = {"index": 0, "action": "unusable"}
        assert request(server.link, f"/{wrong}/decide", body)[0] == 403
        assert request(server.link, "/decide", body)[0] == 403
    assert decisions(memory_run) == []


def test_tokens_are_long_and_differ(memory_run: Path) -> None:
    tokens = set()
    for _ in range(2):
        with served(memory_run) as server:
            tokens.add(server.token)
            assert len(server.token) >= 32
    assert len(tokens) == 2


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "", "127.0.0.1"]
)
def test_names_that_lead_here_from_elsewhere_are_refused(memory_run: Path, host: str) -> None:
    with served(memory_run) as server:
        assert request(server.link, "", Host=host)[0] == 403
        body = {"index": 0, "action": "unusable"}
        assert request(server.link, "decide", body, Host=host)[0] == 403
        assert request(server.link, "", Host=f"localhost:{server.server_port}")[0] == 200
    assert decisions(memory_run) == []


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:{port}", ""]
)
def test_requests_of_other_sites_are_refused(memory_run: Path, origin: str) -> None:
    with served(memory_run) as server:
        body = {"index": 0, "action": "unusable"}
        foreign = origin.format(port=server.server_port)
        assert request(server.link, "decide", body, Origin=foreign)[0] == 403
        assert request(server.link, "state?since=0", Origin=foreign)[0] == 403
        assert decisions(memory_run) == []
        own = f"http://127.0.0.1:{server.server_port}"
        assert request(server.link, "decide", body, Origin=own)[0] == 200
    assert len(decisions(memory_run)) == 1


@pytest.mark.parametrize(
    "path",
    [
        f"../{SECRET}", f"../../{SECRET}", f"..%2f{SECRET}", f"%2e%2e/{SECRET}",
        "../../../etc/passwd", "/etc/passwd", "assets/../review.html", "review.html",
        SECRET, f"image/train/../{SECRET}",
        "image/train/0/..%2f..%2fconfig.toml", "image/../train/0/small", "image/test/0/small",
        "item/-1", "item/1e3", "item/999999", "image/train/200/small", "image/trusted/100/small",
        "state?since=-1", "state?since=x", "state", "decide", "?", "review.js/", "\\..\\x", "%00",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(memory_run: Path, path: str) -> None:
    (memory_run / SECRET).write_text(Decision(index=1, action="unusable").line() + "\n")
    with served(memory_run) as server:
        status, _, content = request(server.link, f"/{server.token}/{path}")
    if path == "?":  # the page itself, whatever is asked of it
        assert (status, content[:15]) == (200, b"<!doctype html>")
    else:
        assert status in (400, 404)
        assert len(content) < 60


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_are_refused(memory_run: Path, method: str) -> None:
    with served(memory_run) as server:
        status, headers, _ = request(server.link, "", method=method)
        assert status == 501
        assert "Access-Control-Allow-Origin" not in headers


def test_every_answer_forbids_what_the_page_does_not_need(memory_run: Path) -> None:
    with served(memory_run) as server:
        for path in (*PATHS, "/"):
            headers = request(server.link, path)[1]
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"


# What is decided


def test_decisions_are_written_with_their_labels(memory_run: Path) -> None:
    points = pq.read_table(memory_run / "points.parquet")
    given, suggested = (np.asarray(points[n]) for n in ("given_label", "suggested_label"))
    i, j, k, m = np.flatnonzero(points["is_label_issue"])[:4].tolist()
    third = next(c for c in range(10) if c not in (given[k], suggested[k]))
    with served(memory_run) as server:
        for body in (
            {"index": i, "action": "accept"},
            {"index": j, "action": "keep"},
            {"index": k, "action": "label", "label": third},
            {"index": m, "action": "label", "label": int(suggested[m])},
        ):
            assert request(server.link, "decide", body)[0] == 200
    assert decisions(memory_run) == [
        Decision(index=i, action="accept", label=int(suggested[i])),
        Decision(index=j, action="keep", label=int(given[j])),
        Decision(index=k, action="label", label=third),
        Decision(index=m, action="accept", label=int(suggested[m])),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {}, [], 7, {"index": 200, "action": "keep"}, {"index": -1, "action": "keep"},
        {"index": "0", "action": "keep"}, {"index": True, "action": "keep"}, {"index": 0},
        {"index": 0, "action": "delete"}, {"index": 0, "action": "label"},
        {"index": 0, "action": "label", "label": 10}, {"index": 0, "action": "label", "label": -1},
        {"index": 0, "action": "label", "label": "3"}, {"index": 0, "action": ["keep"]},
        {"index": 0, "action": "keep", "since": "x"}, {"index": 0, "action": "undo"},
        {"index": 0, "action": "undo", "line": 5}, {"index": 0, "action": "keep", "x": "y" * 5000},
    ],
    ids=lambda body: str(body)[:40],
)  # fmt: skip
def test_what_is_no_decision_writes_nothing(memory_run: Path, body: object) -> None:
    with served(memory_run) as server:
        assert request(server.link, "decide", body)[0] in (400, 404, 409, 413)
    assert (memory_run / SECRET).read_bytes() == b""


def test_a_form_of_another_page_cannot_decide(memory_run: Path) -> None:
    body = {"index": 0, "action": "unusable"}
    with served(memory_run) as server:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            assert request(server.link, "decide", body, Content_Type=kind)[0] == 400
    assert decisions(memory_run) == []


def test_two_tabs_see_and_keep_what_the_other_decides(memory_run: Path) -> None:
    with served(memory_run) as server:
        first = json_of(server.link, "decide", {"index": 5, "action": "unusable", "since": 0})
        other = json_of(server.link, "decide", {"index": 6, "action": "unusable", "since": 0})
        assert [row[0] for row in other["changed"]] == [5, 6]
        seen = json_of(server.link, f"state?since={first['lines']}")
        assert seen["changed"] == [[6, "unusable", None]]
        # The first tab decides on what the second has decided meanwhile, which then cannot undo it.
        json_of(server.link, "decide", {"index": 6, "action": "keep", "since": 1})
        undo = {"index": 6, "action": "undo", "line": other["line"]}
        assert request(server.link, "decide", undo)[0] == 409
        assert json_of(server.link, "state?since=0")["last"] == [2, 6]
    assert [d.action for d in decisions(memory_run)] == ["unusable", "unusable", "keep"]


def test_what_was_decided_survives_kill_9(memory_run: Path) -> None:
    with process(memory_run) as (server, link):
        for index in range(10):
            json_of(link, "decide", {"index": index, "action": "unusable"})
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert sorted(standing(decisions(memory_run))) == list(range(10))
    with process(memory_run) as (_, link):  # the lock of the killed one is gone
        assert len(json_of(link, "state?since=0")["changed"]) == 10


def test_a_run_that_is_reviewed_already_is_refused(memory_run: Path) -> None:
    with served(memory_run):
        second = subprocess.run(
            [sys.executable, "-m", "autodo", "review", str(memory_run)],
            capture_output=True, text=True,
        )  # fmt: skip
    assert second.returncode == 2
    assert "being reviewed already" in second.stderr


def test_ctrl_c_says_what_to_do_next(memory_run: Path) -> None:
    with process(memory_run) as (server, link):
        json_of(link, "decide", {"index": 0, "action": "unusable"})
        server.send_signal(signal.SIGINT)
        assert server.stdout is not None
        said = server.stdout.read()
        assert server.wait() == 0
    assert f"autodo export {memory_run}" in said


# What is told


def test_the_nearest_trusted_examples_come_with_an_item(memory_run: Path) -> None:
    points = pq.read_table(memory_run / "points.parquet").to_pylist()
    right = total = 0
    with served(memory_run) as server:
        for row in points[30:60]:
            similar = json_of(server.link, f"item/{row['index']}")["similar"]
            labels = [label for _, label in similar["all"]]
            right += sum(label == row["given_label"] for label in labels)
            total += len(labels)
            assert {label for _, label in similar["given"]} == {row["given_label"]}
            number = similar["all"][0][0]
            assert request(server.link, f"image/trusted/{number}/small")[0] == 200
    assert total == 30 * 6
    # Measured: 0.84 of the neighbours of rightly labelled digits have their label; chance is 0.1.
    assert right / total > 0.7


def test_what_is_told_of_an_item(memory_run: Path) -> None:
    with served(memory_run) as server:
        item = json_of(server.link, "item/7")
    assert item["id"] == "<b>7</b>.png"
    label, confidence = item["predicted"]
    assert 0 <= label < 10
    assert 0 < confidence <= 1


def test_the_page_carries_hostile_names_as_data(memory_run: Path) -> None:
    with served(memory_run) as server:
        page = request(server.link, "")[2].decode()
    assert "<img" not in page
    assert page.count("</script>") == 2
    inside = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(inside)["classes"][0] == "</script><img src=x onerror=window.hacked=1>"


def test_a_picture_of_the_run_is_exact(memory_run: Path) -> None:
    with served(memory_run) as server:
        status, headers, content = request(server.link, "image/train/3/large")
    assert (status, headers["Content-Type"]) == (200, "image/webp")
    assert Image.open(io.BytesIO(content)).size == (8, 8)
