"""`butlers key …`, and a running butler that hears of it at once."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from .conftest import written
from .test_cli_lifecycle import run_until_ready


def test_a_key_is_the_last_word_and_only_its_id_is_ever_shown_again(butlers, place):
    made = butlers("key", "create", place, "--tenant", "acme", "--actor", "support", "--expires", "30d")
    assert made.returncode == 0
    key = made.stdout.split()[-1]
    assert made.stdout == f"{key}\n"
    key_id = str(uuid.UUID(key.split("_")[1]))
    listed = butlers("key", "list", place)
    (row,) = [each for each in json.loads(butlers("key", "list", place, "--json").stdout) if each["id"] == key_id]
    assert (row["tenant"], row["actor"], row["roles"], row["elevated"]) == ("acme", "support", [], False)
    assert row["state"] == "active"
    ends = datetime.fromisoformat(row["expires_at"])
    assert timedelta(days=29, hours=23) < ends - datetime.now(UTC) < timedelta(days=30, minutes=1)
    assert key_id in listed.stdout
    assert key not in listed.stdout + json.dumps(row)
    assert "secret" not in row


def test_a_key_works_at_once_on_a_running_butler_and_stops_at_once(butlers, home, tmp_path, worker):
    folder = written(tmp_path, f"cli_{worker}", '[butler.auth]\nmode = "keys"')
    with run_until_ready(home, folder) as (_, lines):
        address = lines[-1].removeprefix("ready: ").replace("/mcp", "/metrics")
        assert httpx2.get(address).status_code == 401
        made = butlers("key", "create", folder, "--tenant", "acme", "--role", "admin", "--elevated", "--json")
        (answer,) = json.loads(made.stdout)
        assert (answer["tenant"], answer["actor"]) == ("acme", "agent")
        headers = {"Authorization": f"Bearer {answer['key']}"}
        assert httpx2.get(address, headers=headers).status_code == 200
        ended = butlers("key", "revoke", folder, answer["id"], "--json")
        assert (ended.returncode, json.loads(ended.stdout)) == (0, [{"revoked": answer["id"]}])
        assert httpx2.get(address, headers=headers).status_code == 401
    again = butlers("key", "revoke", folder, answer["id"])
    assert again.returncode == 1
    assert again.stderr == f"butlers: no key {answer['id']} is in force. `butlers key list` shows them.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tenant", "a b"], "a tenant is named by"),
        (["--tenant", "acme", "--role", "root"], "unknown role root. Roles: admin."),
        (["--tenant", "acme", "--elevated"], "elevation is for admins. Add --role admin."),
        (["--tenant", "acme", "--expires", "soon"], "is not a time span"),
        (["--tenant", "acme", "--expires", "0d"], "is not a time span"),
        (["--tenant", "acme", "--actor", " "], "a key needs an actor"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused_in_one_line(butlers, place, words, said):
    refused = butlers("key", "create", place, *words)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert said in refused.stderr


def test_what_is_no_id_can_not_be_revoked(butlers, place):
    refused = butlers("key", "revoke", place, "nonsense")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (
        1,
        "butlers: nonsense is not a key's id. `butlers key list` shows the ids.",
    )
