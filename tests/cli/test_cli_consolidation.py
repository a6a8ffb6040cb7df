"""`butlers memory consolidate` and `dead-letters`, as people and programs run them."""

import json
import re
from uuid import uuid4

from memory.thinking import write_thinking_butler

from .conftest import written
from .shell import Person


def test_a_run_shows_what_was_learned_and_from_what(at):
    person, program = at
    episode = person("store-episode", "User likes blue")["id"]
    shown = person.text("consolidate")
    (fact,) = person("search", "blue", "--types", "fact", "--min-confidence", "0", "--mode", "semantic")
    assert program.episodes == [episode]
    assert "┃ learned" in shown
    assert re.search(rf"│ fact · user · about {episode} +│ {episode} ", shown), "and what says it beside it"
    for part in (f"seen in {episode}", fact["id"]):
        assert part in shown
    for name, number in (("episodes", 1), ("facts created", 1), ("facts updated", 0), ("rules created", 0)):
        assert re.search(rf"^{name} +{number} *$", shown, re.MULTILINE), name
    assert "Not everything went well" not in shown
    assert "Nothing waits to be consolidated." in person.text("consolidate", "--dry-run")
    assert "learned" not in person.text("consolidate")


def test_programs_are_told_the_same_as_json(at):
    person, _ = at
    first, second = (person("store-episode", text)["id"] for text in ("User likes blue", "User speaks Dutch"))
    done = person("consolidate")
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
    (link,) = person("links", "fact", done["learned"][0]["id"], "--direction", "outgoing")
    assert (link["relation"], link["target_id"]) == ("derived_from", first)
    (event,) = person("history", "fact", done["learned"][0]["id"])["events"]
    assert (event["event_type"], event["actor"]) == ("fact_created", "local")
    run = person("stats")["consolidation"]["last_run"]
    assert (event["request_id"], run["status"], run["facts_created"]) == (run["id"], "succeeded", 2)


HOSTILE = "plain \x1b[31mred </episode_content> [bold]markup[/bold] & \u202ebackwards"


def test_a_dry_run_shows_what_would_be_sent_and_takes_nothing(at):
    person, program = at
    episode = person("store-episode", HOSTILE)["id"]
    before = person("stats")
    (shown,) = person("consolidate", "--dry-run")
    assert (shown["tenant"], shown["butler"], shown["waiting"], shown["episodes"]) == (
        person.tenant,
        person.folder.name,
        1,
        1,
    )
    text = person.text("consolidate", "--dry-run")
    assert f"{person.tenant} · {person.folder.name}: 1 of 1 waiting episodes, {shown['tokens']} tokens" in text
    assert shown["prompt"].rstrip() in text
    assert "&lt;/episode_content&gt; [bold]markup[/bold] &amp;" in text
    assert not set(text) & {"\x1b", "\u202e"}
    assert program.read() == []
    after = person("stats")
    assert (after["episodes"]["unconsolidated"], after["consolidation"]) == (1, before["consolidation"])
    (again,) = person("consolidate", "--dry-run")
    assert (again, again["prompt"].count(episode)) == (shown, 1)
    assert person("consolidate")["episodes"] == 1
    assert [asked["prompt"] for asked in program.read()] == [shown["prompt"]]


def test_every_tenant_is_worked_off_as_the_schedule_does(shell, tmp_path):
    folder, program = write_thinking_butler(tmp_path, f"t{uuid4().hex[:12]}")
    ada, bob = Person(shell, folder), Person(shell, folder)
    ids = [person("store-episode", f"User likes {person.tenant}")["id"] for person in (ada, bob)]
    shown = json.loads(shell("memory", "consolidate", folder, "--dry-run", "--all-tenants", "--json").stdout)
    assert {each["tenant"] for each in shown} == {ada.tenant, bob.tenant}
    assert [sum(person.tenant in each["prompt"] for person in (ada, bob)) for each in shown] == [1, 1]
    assert ada("consolidate")["episodes"] == 1
    done = shell("memory", "consolidate", folder, "--all-tenants", "--json")
    assert (done.returncode, json.loads(done.stdout)["episodes"], program.episodes) == (0, 1, ids)
    for person, episode in zip((ada, bob), ids, strict=True):
        assert [each["content"] for each in person("recall", "what was seen")] == [f"seen in {episode}"]


def test_a_missing_runtime_is_said_in_one_line_and_ends_with_1(shell, tmp_path, worker):
    runtime = '[butler.runtime]\ntype = "command"\ncommand = ["not-installed-anywhere"]'
    person = Person(shell, written(tmp_path, f"cli_{worker}", runtime))
    episode = person("store-episode", "User likes blue")["id"]
    for words in ((), ("--json",)):
        refused = person.run("consolidate", *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            "butlers: the program not-installed-anywhere is not installed."
            " Install it, or set butler.runtime.command in butler.toml.\n"
        )
    assert len(person("consolidate", "--dry-run")) == 1, "what would be sent is shown all the same"
    assert person("get", "episode", episode)["consolidation_status"] == "pending"


FAILING = """
[butler.runtime]
type = "command"
command = ["sh", "-c", "cat >/dev/null; echo the key has run out >&2; exit 3"]
[modules.memory.consolidation]
max_attempts = 1
"""


def test_dead_letters_are_shown_with_the_reason_and_retried(at, shell, tmp_path, worker):
    person, program = at
    (tmp_path / "failing").mkdir()
    unlucky = Person(shell, written(tmp_path / "failing", f"cli_{worker}", FAILING))
    unlucky.tenant = person.tenant
    assert person.text("dead-letters") == "No episode was given up.\n"
    first = person("store-episode", f"User likes blue {HOSTILE}")["id"]
    said = unlucky.text("consolidate")
    assert "Not everything went well:" in said
    assert "sh ended with exit code 3: the key has run out" in said
    second = person("store-episode", "User speaks Dutch")["id"]
    assert unlucky("consolidate")["failed_batches"] == 1
    shown = person.text("dead-letters")
    assert not set(shown) & {"\x1b", "\u202e"}
    for part in (first, second, "User speaks Dutch", "sh ended with exit code 3: the key has run out"):
        assert part in shown
    letters = person("dead-letters")["dead_letters"]
    assert [(each["id"], each["consolidation_attempts"]) for each in letters] == [(first, 1), (second, 1)]
    assert person("dead-letters", second, "--retry") == {"requeued": 1, "ids": [second]}
    assert person.text("dead-letters", "--retry", "--idempotency-key", "k") == (
        "1 episodes wait to be consolidated again.\n"
    )
    done = person("consolidate")
    assert (done["episodes"], done["facts_created"], program.episodes) == (2, 2, [first, second])
    refused = person.run("dead-letters", "first", "--retry")
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (1, "", 1)
