"""The `butlers memory` commands, as text and as JSON, and export and import through them."""

import json
import os
import pty
import re
import subprocess
import sys
from uuid import uuid4

import pytest
from fastmcp import Client

from butlers import app
from butlers.cli import entity_views, hygiene_views, memory_client, memory_views, receipt_views, run_views
from butlers.modules.memory.tools import TOOLS

from .conftest import write_butler
from .shell import MemoryShell


@pytest.fixture
def memory(shell, place) -> MemoryShell:
    return MemoryShell(shell, place)


def test_a_fact_from_its_first_word_to_its_history(memory):
    first = memory("store-fact", "user", "color", "blue", "--importance", "7", "--tags", "a,b", "--tags", "c")
    second = memory("store-fact", "user", "color", "green", "--permanence", "stable", "--idempotency-key", "k")
    assert second["superseded_id"] == first["id"]
    assert (
        memory("store-fact", "user", "color", "green", "--permanence", "stable", "--idempotency-key", "k") == second
    )
    fact = memory("get", "fact", first["id"])
    assert (fact["importance"], fact["tags"], fact["lifecycle"]) == (7.0, ["a", "b", "c"], "superseded")
    assert memory("confirm", "fact", second["id"])["confidence"] == 1.0
    (link,) = memory("links", "fact", second["id"], "--direction", "outgoing")
    assert (link["relation"], link["target_id"]) == ("supersedes", first["id"])
    assert memory("forget", "fact", second["id"])["state"] == "retracted"
    assert memory("restore", "fact", second["id"])["restored"] is True
    history = memory("history", "fact", second["id"])
    assert [event["event_type"] for event in history["events"]] == [
        "fact_created",
        "fact_confirmed",
        "fact_forgotten",
        "fact_restored",
    ]
    assert [fact["id"] for fact in history["superseded"]] == [first["id"]]
    page = memory("history", "fact", second["id"], "--limit", "3")
    assert (len(page["events"]), page["total"], page["truncated"]) == (3, 4, True)
    shown = memory.text("history", "fact", second["id"], "--limit", "3")
    assert f"3 of 4 events; the next ones: --cursor {page['next_cursor']}" in shown
    rest = memory("history", "fact", second["id"], "--cursor", page["next_cursor"])
    assert [event["event_type"] for event in rest["events"]] == ["fact_restored"]


def test_rules_and_episodes_and_what_is_found_of_them(memory):
    rule = memory("store-rule", "Ask before you send an email", "--tags", '["x,y"]')["id"]
    episode = memory("store-episode", "We wrote emails all day", "--importance", "2")["id"]
    assert memory("helpful", rule)["success_count"] == 1
    assert memory("harmful", rule, "--reason", "too late")["harmful_count"] == 1
    assert memory("get", "rule", rule)["metadata"]["harmful_reasons"] == ["too late"]
    found = memory("search", "email", "--types", "rule,episode", "--mode", "keyword", "--min-confidence", "0")
    assert {each["id"] for each in found} == {rule, episode}
    assert [each["tags"] for each in found if each["id"] == rule] == [["x,y"]]
    assert len(memory("search", "email", "--limit", "1")) == 1
    assert [each["id"] for each in memory("recall", "sending email")] == [rule]
    text = memory("context", "Write to Ada", "--token-budget", "200")
    assert text.startswith("# Memory Context\n")
    assert "- Ask before you send an email" in text
    assert memory.text("context", "Write to Ada", "--token-budget", "200") == text
    assert memory("stats")["rules"]["total"] == 1


async def test_json_is_exactly_what_the_tool_answers(shell, place, environment):
    (place / "butler.toml").write_text((place / "butler.toml").read_text() + 'toolset = "full"\n')
    stored = json.loads(shell("memory", "store-fact", place, "Ada", f"k{uuid4().hex}", "likes tea", "--json").stdout)
    about = {"memory_type": "fact", "memory_id": stored["id"]}
    config = app.load_configuration(place)
    async with (
        app.open_butler(config, environment) as butler,
        app.open_server(butler) as server,
        Client(server.mcp) as client,
    ):
        for tool, arguments, words in (
            ("memory_search", {"query": "tea", "mode": "keyword"}, ("search", place, "tea", "--mode", "keyword")),
            ("memory_links", about, ("links", place, "fact", stored["id"])),
            ("memory_history", about, ("history", place, "fact", stored["id"])),
            ("memory_stats", {"scope": "nobody"}, ("stats", place, "--scope", "nobody")),
        ):
            expected = (await client.call_tool(tool, arguments)).structured_content
            answer = json.loads(shell("memory", *words, "--json").stdout)
            assert without_clocks(answer) == without_clocks(expected.get("result", expected))


def without_clocks(answer):
    """Return the answer with every value that changes between two calls set to 0."""
    text = json.dumps(answer)
    return json.loads(re.sub(r'("(?:confidence|average_confidence|backlog_age_hours)": )[\d.e-]+', r"\g<1>0", text))


HOSTILE = "plain \x1b[31mred\x1b[0m \x07\x9b2J \u202ebackwards\u2066 [bold]markup[/bold] {{x}} :smile: \u2028end 👩‍🚀"


def test_row_36_content_is_shown_as_text_and_steers_no_terminal(memory):
    stored = memory("store-fact", "the user", "sa\u202eys", HOSTILE)
    memory("store-fact", "the user", "sa\u202eys", "second " * 60 + HOSTILE)
    shown = "".join(
        (
            memory.text("search", "markup"),
            memory.text("recall", "markup"),
            memory.text("get", "fact", stored["id"]),
            memory.text("history", "fact", stored["id"]),
            memory.text("links", "fact", stored["id"]),
            memory.text("context", "markup"),
        )
    )
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028"}
    for part in (r"\x1b[31mred", r"\x07", "[bold]markup[/bold]", "{{x}}", ":smile:", "👩‍🚀", r"sa\u202eys"):
        assert part in shown


def test_text_has_scores_with_three_digits_and_ids_that_can_be_copied(memory):
    stored = memory("store-fact", "Ada", "drinks", "tea, " * 40)
    memory("store-fact", "Ada", "drinks", "coffee")
    found = memory.text("search", "coffee", columns=70)
    assert re.search(r"│ 0\.\d{3} +│ fact · Ada · drinks", found)
    assert re.search(r"confidence 1\.000, similarity 0\.\d{3}, rank 0\.\d{3}", found)
    shown = memory.text("history", "fact", stored["id"], columns=70)
    assert "fact_superseded by local" in shown
    for text in (shown, memory.text("links", "fact", stored["id"], columns=70)):
        assert stored["id"] in text
        assert max(len(line) for line in text.splitlines()) <= 70
    assert "average confidence       1.000" in memory.text("stats")
    assert memory.text("store-rule", "Be kind").startswith("Stored the rule ")
    assert memory.text("search", "x", "--scope", "nobody", "--types", "episode") == "Nothing was found.\n"


NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["search", "x", "--mode", "psychic"], "--mode: Input should be 'semantic', 'keyword', 'hybrid' or "),
        (
            ["search", "x", "--limit", "0", "--min-confidence", "2"],
            "--limit: Input should be greater than or equal to 1;",
        ),
        (["search", "x", "--types", "dream"], "--types: Input should be 'episode', 'fact' or 'rule'."),
        (["search", " "], "query is blank."),
        (["store-fact", "a", "b", "c", "--importance", "nan"], "--importance: "),
        (["store-fact", "a", "b", ""], "CONTENT: String should have at least 1 character."),
        (["store-rule", "a", "--permanence", "forever"], "--permanence: Input should be 'permanent', "),
        (["store-episode", "a", "--butler", "jeeves"], "this is the butler cli_"),
        (["get", "thing", NOBODY], "TYPE: Input should be "),
        (["get", "fact", "first"], "ID is not an id."),
        (["confirm", "episode", NOBODY], "an episode can't be confirmed."),
        (["forget", "fact", NOBODY], "no fact "),
        (["helpful", NOBODY], "no rule "),
        (["stats", "--tenant", "a b"], "a tenant name is"),
        (["export", "nowhere/at/all"], "nowhere/at/all can't be written: No such file or directory."),
        (["import", "nowhere"], "nowhere can't be read: No such file or directory."),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_what_can_not_be_done_is_said_in_one_line_and_ends_with_1(shell, place, words, message):
    command, *rest = words
    refused = shell("memory", command, place, *rest)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"butlers: {message}")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["search", "."], ["search", ".", "x", "--limit", "many"], ["get", ".", "fact"], ["import", "."]]
)
def test_wrong_usage_of_a_memory_command_ends_with_2(shell, words):
    refused = shell("memory", *words)
    assert (refused.returncode, refused.stdout) == (2, "")


def test_a_butler_without_memory_says_so(butlers, tmp_path):
    folder = write_butler(tmp_path, f"t{uuid4().hex[:12]}")
    (folder / "butler.toml").write_text((folder / "butler.toml").read_text().replace("true", "false"))
    refused = butlers("memory", "stats", folder)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"butlers: the butler {folder.name} has no memory."
        " Set `enabled = true` under [modules.memory] in its butler.toml.\n"
    )


def test_every_tool_of_the_memory_has_a_command_that_shows_it():
    views = {**memory_views.VIEWS, **entity_views.VIEWS, **receipt_views.VIEWS, **run_views.VIEWS}
    views["memory_hygiene"] = hygiene_views.report
    assert set(views) == {tool.name for tool in TOOLS}


def test_every_argument_of_a_tool_can_be_given():
    from typing import get_type_hints

    from butlers.cli.memory import app as commands

    sources = {each.callback.__wrapped__.__name__: each.callback.__wrapped__ for each in commands.registered_commands}
    named = {"helpful": "memory_mark_helpful", "harmful": "memory_mark_harmful"}
    jobs = {"consolidate", "sweep", "cleanup", "reembed", "retract_from", "undo"}
    from_file = {"store_batch", "hygiene"}
    # The commands of runs share the tool memory_consolidation_runs.
    without_tool = {"export", "import_", "imports", "erase", "revert_inversion", "runs", "take_back"}
    for name, function in sources.items():
        # The commands of jobs, and those that read a file, take other arguments than their tools.
        if name in jobs | from_file | without_tool:
            continue
        tool = next(each for each in TOOLS if each.name == named.get(name, f"memory_{name}"))
        wanted = set(get_type_hints(tool.function)) - {"memory", "caller", "return"}
        given = set(get_type_hints(function))
        assert wanted == given - {"folder", "tenant", "as_json", "return"}, name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (None, None),
        ([], None),
        (["a"], ["a"]),
        (["a, b", "c"], ["a", "b", "c"]),
        (['["a,b"]'], '["a,b"]'),
        ([""], None),
    ],
)
def test_an_option_that_takes_several_words_is_understood(values, words):
    assert memory_client.split_values(values) == words


def test_a_tenant_goes_to_a_file_and_comes_back_from_a_pipe(butlers, place, home, memory, tmp_path):
    memory("store-fact", "Ada", "likes", "tea")
    file = tmp_path / "out.jsonl"
    done = memory("export", file)
    assert (done["tenant"], done["exported"]["fact"], done["memories"]) == (memory.tenant, 1, 1)
    assert file.stat().st_mode & 0o077 == 0
    assert {each.name for each in tmp_path.iterdir()} == {file.name, place.name}
    lines = file.read_text().splitlines()
    streamed = butlers("memory", "export", place, "--tenant", memory.tenant)
    assert streamed.stdout.splitlines()[1:] == lines[1:]
    assert "1 memories in " in streamed.stderr
    other = f"t{uuid4().hex[:12]}"
    taken = subprocess.run(
        [sys.executable, "-m", "butlers.cli", "memory", "import", str(place), "-", "--tenant", other],
        env={**os.environ, "BUTLERS_HOME": str(home), "COLUMNS": ""},
        input=streamed.stdout,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (taken.returncode, taken.stderr) == (0, "")
    assert re.search(r"fact +1 +0", taken.stdout)
    assert re.search(r"1 memories in [\d.]+ s, [\d.]+/s", taken.stdout)
    again = butlers("memory", "import", place, file, "--tenant", other)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith(f"butlers: the tenant {other} is not empty.")
    assert (
        json.loads(butlers("memory", "import", place, file, "--tenant", other, "--merge", "--json").stdout)[
            "skipped"
        ]["fact"]
        == 1
    )


def test_an_export_that_fails_leaves_the_file_that_was_there(shell, place, tmp_path):
    file = tmp_path / "kept.jsonl"
    file.write_text("mine")
    assert shell("memory", "export", place, file, "--tenant", "a b").returncode == 1
    assert file.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir() if "kept" in each.name] == ["kept.jsonl"]


def test_a_cut_off_file_is_refused_in_one_line(shell, place, memory, tmp_path):
    memory("store-rule", "Be kind")
    file = tmp_path / "cut.jsonl"
    memory("export", file)
    file.write_bytes(file.read_bytes()[:-30])
    number = len(file.read_bytes().splitlines())
    refused = shell("memory", "import", place, file, "--tenant", f"t{uuid4().hex[:12]}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"butlers: line {number}: it is not valid JSON; the file may be cut off."
        " Nothing was imported. Fix that line, or export again.\n"
    )


def test_an_export_ends_quietly_when_nobody_reads_it(home, place, memory):
    memory("store-rule", "Be kind")
    running = subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "memory", "export", str(place), "--tenant", memory.tenant],
        env={**os.environ, "BUTLERS_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    stderr = running.stderr.read()
    running.stderr.close()
    assert (running.wait(30), stderr) == (1, "")


def test_a_terminal_shows_the_progress(home, place, memory, tmp_path):
    for n in range(3):
        memory("store-rule", f"Be kind {n} times")
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "memory", "export", place, tmp_path / "x", "--tenant", memory.tenant],
        env={**os.environ, "BUTLERS_HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=follower,
    )
    os.close(follower)
    seen = b""
    while part := _read(leader):
        seen += part
    os.close(leader)
    assert running.wait(30) == 0
    text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen).decode()
    total = len((tmp_path / "x").read_text().splitlines()) - 1
    assert "exporting" in text
    assert f"{total}/{total}" in text
    assert re.search(r"\d:\d\d:\d\d", text)


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
