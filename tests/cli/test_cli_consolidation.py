"""The `butlers memory consolidate` and `dead-letters` commands, as text and as JSON."""

import json
import re
from uuid import uuid4

from memory.scripted_model import write_scripted_butler

from .conftest import write_butler
from .shell import MemoryShell


def test_a_run_shows_what_was_learned_and_from_what(thinking):
    memory, program = thinking
    episode = memory("store-episode", "User likes blue")["id"]
    shown = memory.text("consolidate")
    (fact,) = memory("search", "blue", "--types", "fact", "--min-confidence", "0", "--mode", "semantic")
    assert program.episodes == [episode]
    assert "┃ learned" in shown
    assert re.search(rf"│ {episode} +│ fact · user · about {episode} ", shown), "and its evidence beside it"
    for part in (f"seen in {episode}", fact["id"]):
        assert part in shown
    for name, number in (("episodes", 1), ("facts created", 1), ("facts updated", 0), ("rules created", 0)):
        assert re.search(rf"^{name} +{number} *$", shown, re.MULTILINE), name
    assert "Errors:" not in shown
    assert "No episodes are pending." in memory.text("consolidate", "--dry-run")
    assert "learned" not in memory.text("consolidate")


def test_the_json_has_the_same(thinking):
    memory, _ = thinking
    first, second = (memory("store-episode", text)["id"] for text in ("User likes blue", "User speaks Dutch"))
    done = memory("consolidate")
    assert (done["dry_run"], done["status"], done["groups"], done["batches"], done["failed_batches"]) == (
        False,
        "finished",
        1,
        1,
        0,
    )
    assert (done["episodes"], done["facts_created"], done["errors"]) == (2, 2, [])
    assert [(each["content"], each["evidence"]) for each in done["learned"]] == [
        (f"seen in {first}", [first]),
        (f"seen in {second}", [second]),
    ]
    (link,) = memory("links", "fact", done["learned"][0]["id"], "--direction", "outgoing")
    assert (link["relation"], link["target_id"]) == ("derived_from", first)
    (event,) = memory("history", "fact", done["learned"][0]["id"])["events"]
    assert (event["event_type"], event["actor"]) == ("fact_created", "local")
    run = memory("stats")["consolidation"]["last_run"]
    assert (event["request_id"], run["status"], run["facts_created"]) == (run["id"], "succeeded", 2)


HOSTILE = "plain \x1b[31mred </episode_content> [bold]markup[/bold] & \u202ebackwards"


def test_a_dry_run_shows_the_prompts_and_changes_nothing(thinking):
    memory, program = thinking
    episode = memory("store-episode", HOSTILE)["id"]
    before = memory("stats")
    (shown,) = memory("consolidate", "--dry-run")
    assert (shown["tenant"], shown["butler"], shown["waiting"], shown["episodes"]) == (
        memory.tenant,
        memory.folder.name,
        1,
        1,
    )
    text = memory.text("consolidate", "--dry-run")
    assert f"{memory.tenant} · {memory.folder.name}: 1 of 1 pending episodes, {shown['tokens']} tokens" in text
    assert shown["prompt"].rstrip() in text
    assert "&lt;/episode_content&gt; [bold]markup[/bold] &amp;" in text
    assert not set(text) & {"\x1b", "\u202e"}
    assert program.calls() == []
    after = memory("stats")
    assert (after["episodes"]["unconsolidated"], after["consolidation"]) == (1, before["consolidation"])
    (again,) = memory("consolidate", "--dry-run")
    assert (again, again["prompt"].count(episode)) == (shown, 1)
    assert memory("consolidate")["episodes"] == 1
    assert [asked["prompt"] for asked in program.calls()] == [shown["prompt"]]


def test_all_tenants_are_consolidated_as_on_the_schedule(shell, tmp_path):
    folder, program = write_scripted_butler(tmp_path, f"t{uuid4().hex[:12]}")
    ada, bob = MemoryShell(shell, folder), MemoryShell(shell, folder)
    ids = [memory("store-episode", f"User likes {memory.tenant}")["id"] for memory in (ada, bob)]
    shown = json.loads(shell("memory", "consolidate", folder, "--dry-run", "--all-tenants", "--json").stdout)
    assert {each["tenant"] for each in shown} == {ada.tenant, bob.tenant}
    assert [sum(memory.tenant in each["prompt"] for memory in (ada, bob)) for each in shown] == [1, 1]
    assert ada("consolidate")["episodes"] == 1
    done = shell("memory", "consolidate", folder, "--all-tenants", "--json")
    assert (done.returncode, json.loads(done.stdout)["episodes"], program.episodes) == (0, 1, ids)
    for memory, episode in zip((ada, bob), ids, strict=True):
        assert [each["content"] for each in memory("recall", "what was seen")] == [f"seen in {episode}"]


def test_a_missing_runtime_is_said_in_one_line_and_ends_with_1(shell, tmp_path, worker):
    runtime = '[butler.runtime]\ntype = "command"\ncommand = ["not-installed-anywhere"]'
    memory = MemoryShell(shell, write_butler(tmp_path, f"cli_{worker}", runtime))
    episode = memory("store-episode", "User likes blue")["id"]
    for words in ((), ("--json",)):
        refused = memory.run("consolidate", *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            "butlers: the program not-installed-anywhere is not installed."
            " Install it, or set butler.runtime.command in butler.toml.\n"
        )
    assert len(memory("consolidate", "--dry-run")) == 1, "the prompts are shown all the same"
    assert memory("get", "episode", episode)["consolidation_status"] == "pending"


FAILING = """
[butler.runtime]
type = "command"
command = ["sh", "-c", "cat >/dev/null; echo the key has run out >&2; exit 3"]
[modules.memory.consolidation]
max_attempts = 1
"""


def test_dead_letters_are_shown_with_the_reason_and_retried(thinking, shell, tmp_path, worker):
    memory, program = thinking
    (tmp_path / "failing").mkdir()
    unlucky = MemoryShell(shell, write_butler(tmp_path / "failing", f"cli_{worker}", FAILING))
    unlucky.tenant = memory.tenant
    assert memory.text("dead-letters") == "There are no dead letters.\n"
    first = memory("store-episode", f"User likes blue {HOSTILE}")["id"]
    output = unlucky.run("consolidate").stdout
    assert "Errors:" in output
    assert "sh ended with exit code 3: the key has run out" in output
    second = memory("store-episode", "User speaks Dutch")["id"]
    assert json.loads(unlucky.run("consolidate", "--json").stdout)["failed_batches"] == 1
    shown = memory.text("dead-letters")
    assert not set(shown) & {"\x1b", "\u202e"}
    for part in (first, second, "User speaks Dutch", "sh ended with exit code 3: the key has run out"):
        assert part in shown
    letters = memory("dead-letters")["dead_letters"]
    assert [(each["id"], each["consolidation_attempts"]) for each in letters] == [(first, 1), (second, 1)]
    assert memory("dead-letters", second, "--retry") == {"requeued": 1, "ids": [second]}
    assert memory.text("dead-letters", "--retry", "--idempotency-key", "k") == ("1 episodes are pending again.\n")
    done = memory("consolidate")
    assert (done["episodes"], done["facts_created"], program.episodes) == (2, 2, [first, second])
    refused = memory.run("dead-letters", "first", "--retry")
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (1, "", 1)
