"""The dashboard of real butler processes: its address, `butlers open`, its imports, and turning it off."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from butlers.dashboard import opening
from butlers.errors import Unavailable
from cli.conftest import write_butler
from cli.test_cli_lifecycle import run_until_ready
from database.butler_processes import new_name

LIST_MODULES = """
import asyncio, json, os, signal, sys
from pathlib import Path
from butlers import app
from butlers.dashboard import LazyDashboard

def ready(_):
    print(json.dumps([name for name in sys.modules if name.startswith(("butlers.dashboard", "jinja2"))]))
    os.kill(os.getpid(), signal.SIGTERM)

asyncio.run(app.serve_http(Path(sys.argv[1]), 0, announce=ready, make_pages=LazyDashboard))
"""


def test_nothing_of_the_dashboard_is_imported_before_the_first_page(place, home, cluster):
    ran = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, str(place)],
        env={**os.environ, "BUTLERS_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(ran.stdout) == ["butlers.dashboard"], ran.stderr


def test_run_prints_the_address_and_open_finds_it(butlers, place, home, cluster):
    with run_until_ready(home, place, "--port", "0") as (_, lines):
        base = lines[-1].removeprefix("ready: ").removesuffix("/mcp")
        (printed,) = [line.split()[-1] for line in lines if line.startswith("Dashboard:")]
        assert printed == f"{base}/"
        port = base.rpartition(":")[2]
        opened = butlers("open", place, "--port", port, "--print")
        assert (opened.returncode, opened.stdout, opened.stderr) == (0, f"{base}/\n", "")
        page = httpx2.get(opened.stdout.strip())
        assert page.status_code == 200
        assert "<h1>" in page.text
    stopped = butlers("open", place, "--port", port, "--print")
    assert stopped.returncode != 0
    assert "does not answer" in stopped.stderr
    assert "butlers run" in stopped.stderr


def test_open_prints_a_ticket_where_a_login_is_needed(butlers, tmp_path, home, cluster):
    folder = write_butler(tmp_path, new_name(), '[butler.auth]\nmode = "keys"\n')
    with run_until_ready(home, folder, "--port", "0") as (_, lines):
        base = lines[-1].removeprefix("ready: ").removesuffix("/mcp")
        address = butlers("open", folder, "--port", base.rpartition(":")[2], "--print").stdout.strip()
        login, _, ticket = address.partition("#ticket=")
        assert login == f"{base}/login"
        with httpx2.Client(follow_redirects=False) as client:
            assert client.get(f"{base}/").headers["location"].startswith("/login")
            sent = client.post(login, data={"credential": ticket, "next": "/"}, headers={"Origin": base})
            assert (sent.status_code, sent.headers["location"]) == (303, "/")
            assert client.get(f"{base}/").status_code == 200
        again = httpx2.post(login, data={"credential": ticket}, headers={"Origin": base})
        assert again.status_code == 401


def test_a_dashboard_that_is_turned_off_is_not_there_and_not_announced(butlers, tmp_path, home, worker, cluster):
    folder = write_butler(tmp_path, f"cli_{worker}", "[butler.dashboard]\nenabled = false\n")
    with run_until_ready(home, folder, "--port", "0") as (_, lines):
        base = lines[-1].removeprefix("ready: ").removesuffix("/mcp")
        assert [line for line in lines if "Dashboard" in line] == []
        for path in ("/", "/facts", "/login", "/live"):
            assert httpx2.get(base + path).status_code == 404, path
        refused = butlers("open", folder, "--port", base.rpartition(":")[2], "--print")
        assert refused.returncode != 0
        assert "enabled = true" in refused.stderr


@contextmanager
def answering(body: bytes) -> Iterator[int]:
    """Answer every request on a port with a body; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_open_gives_no_ticket_to_something_that_is_no_butler(butlers, place, home, cluster):
    for body in (b"[" * 200_000, b'{"butler": "' + b"x" * 1_000_000, b'{"butler": ["general"]}', b"null"):
        with answering(body) as port:
            refused = butlers("open", place, "--port", port, "--print")
        assert refused.returncode != 0
        assert "does not answer" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_open_trusts_no_port_on_which_another_user_listens(tmp_path):
    with answering(b"{}") as port:
        own = opening.listening_users(port)
        # What systems without a table of all sockets use.
        assert own == opening.users_of_processes(port) == {os.geteuid()}
    assert opening.listening_users(port) == opening.users_of_processes(port) == set()
    opening.require_own_listener(tmp_path, port, own | {0})
    with pytest.raises(Unavailable, match="another user"):
        opening.require_own_listener(tmp_path, port, own | {54321})
