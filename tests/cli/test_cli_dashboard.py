"""The dashboard of real butler processes: its address, `butlers open`, its imports, and turning it off."""

import json
import os
import subprocess
import sys

import httpx2

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
