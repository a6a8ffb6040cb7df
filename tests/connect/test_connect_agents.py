"""The files of each agent: what `butlers connect` writes for it, and that a removal leaves no trace."""

import json
import stat
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from butlers.agents import AGENTS, Hooks, Plugin, UserFolder
from butlers.connect import Connection, FileChange, new_files, plan_connect, plan_remove
from butlers.connect.entry import program_command
from butlers.connect.planning import hook_paths, server_path
from butlers.errors import ConfigurationFault, Conflict, Fault, InvalidInput

from .conftest import make_config

PLACES = [
    (name, is_user)
    for name, agent in AGENTS.items()
    for is_user in (False, True)
    if (agent.has_user_files if is_user else agent.has_project_files)
]
each_place = pytest.mark.parametrize(
    ("name", "is_user"), PLACES, ids=[f"{name} {'user' if is_user else 'project'}" for name, is_user in PLACES]
)
each_agent = pytest.mark.parametrize("name", AGENTS)
KEY = "BUTLERS_KEY"


def connection_of(config, name, project=None, **more):
    return Connection(config, AGENTS[name], project, **more)


def apply(changes):
    for change in changes:
        change.apply()
    return changes


def files(*folders):
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def entry_in(path, table):
    text = path.read_text()
    parse = {".toml": tomllib.loads, ".yaml": yaml.safe_load}.get(path.suffix, json.loads)
    return parse(text)[table]


SETTINGS = {
    "json": '// mine\n{\n\t"other": [1, 2], // two\n\t"version": 1\n}\n',
    "toml": "# mine\nmodel = 'x'\n\n[projects.\"/a\"]\ntrust_level = 'trusted'",
    "yaml": "# mine\nGOOSE_MODEL: x\nextensions:\n  developer:\n    enabled: true # on\n",
}


@each_place
@pytest.mark.parametrize("is_new", [True, False], ids=["new files", "files that are there"])
def test_a_removal_leaves_every_file_as_it_was(config, project, owner, name, is_user, is_new):
    connection = connection_of(config, name, None if is_user else project)
    if not is_new:
        path = server_path(connection)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SETTINGS[AGENTS[name].servers.format])
        for hook_path in hook_paths(connection) if isinstance(AGENTS[name].hooks, Hooks) else ():
            hook_path.parent.mkdir(parents=True, exist_ok=True)
            hook_path.write_text(SETTINGS["json"])
    before = files(project, owner)
    assert apply(plan_connect(connection))
    assert files(project, owner) != before
    assert plan_connect(connection) == [], "a second time changes nothing"
    assert apply(plan_remove(connection))
    assert files(project, owner) == before
    assert plan_remove(connection) == [], "nothing is left to remove"


@each_place
def test_two_butlers_do_not_disturb_each_other(config, project, owner, tmp_path, name, is_user):
    other = make_config(tmp_path, "other_house")
    first, second = (connection_of(each, name, None if is_user else project) for each in (config, other))
    apply(plan_connect(first))
    with_first = files(project, owner)
    apply(plan_connect(second))
    assert plan_connect(first) == plan_connect(second) == []
    apply(plan_remove(second))
    assert files(project, owner) == with_first
    apply(plan_connect(second))
    apply(plan_remove(first))
    assert plan_connect(second) == []


STDIO = {
    "command": "{program}",
    "args": ["run", "{folder}", "--stdio"],
    "env": {"BUTLERS_HOME": "/data/butlers"},
}
GOOSE = {"name": "tea_house", "description": "The butler's memory", "enabled": True, "timeout": 300}
OVER_STDIO = {
    "claude-code": STDIO,
    "codex": {**STDIO, "startup_timeout_sec": 60},
    "gemini": {**STDIO, "timeout": 60_000},
    "opencode": {
        "type": "local",
        "command": ["{program}", "run", "{folder}", "--stdio"],
        "environment": {"BUTLERS_HOME": "/data/butlers"},
        "enabled": True,
        "timeout": 30_000,
    },
    "vscode": {"type": "stdio", **STDIO},
    "cursor": STDIO,
    "claude-desktop": STDIO,
    "windsurf": STDIO,
    "zed": STDIO,
    "cline": {**STDIO, "disabled": False, "autoApprove": []},
    "goose": {"type": "stdio", **GOOSE, "cmd": "{program}", "args": STDIO["args"], "envs": STDIO["env"]},
}


@each_agent
def test_an_agent_starts_the_butler_itself(config, project, name):
    agent = AGENTS[name]
    connection = connection_of(config, name, project if agent.has_project_files else None)
    apply(plan_connect(connection))
    text = json.dumps(OVER_STDIO[name]).replace("{program}", str(Path(sys.executable).parent / "butlers"))
    servers = entry_in(server_path(connection), agent.servers.table)
    assert servers == {
        agent.server_name("tea_house"): json.loads(text.replace("{folder}", str(config.folder.resolve())))
    }


URL = "http://127.0.0.1:8155/mcp"
OVER_HTTP = {
    "claude-code": {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${BUTLERS_KEY}"}},
    "codex": {"url": URL, "bearer_token_env_var": "BUTLERS_KEY"},
    "gemini": {"httpUrl": URL, "headers": {"Authorization": "Bearer $BUTLERS_KEY"}, "timeout": 60_000},
    "opencode": {
        "type": "remote",
        "url": URL,
        "headers": {"Authorization": "Bearer {env:BUTLERS_KEY}"},
        "oauth": False,
        "enabled": True,
    },
    "vscode": {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${env:BUTLERS_KEY}"}},
    "cursor": {"url": URL, "headers": {"Authorization": "Bearer ${env:BUTLERS_KEY}"}},
    "windsurf": {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:BUTLERS_KEY}"}},
    "cline": {
        "type": "streamableHttp",
        "url": URL,
        "headers": {"Authorization": "Bearer ${env:BUTLERS_KEY}"},
        "disabled": False,
        "autoApprove": [],
    },
    "goose": {
        "type": "streamable_http",
        **GOOSE,
        "uri": URL,
        "headers": {"Authorization": "Bearer ${BUTLERS_KEY}"},
        "env_keys": ["BUTLERS_KEY"],
    },
}


@pytest.mark.parametrize("name", OVER_HTTP)
def test_an_agent_refers_to_the_key_of_a_running_butler(tmp_path, project, name):
    config = make_config(tmp_path, "tea_house", '[butler.auth]\nmode = "keys"\n')
    agent = AGENTS[name]
    place = project if agent.has_project_files else None
    apply(plan_connect(connection_of(config, name, place)))
    connection = connection_of(config, name, place, over_http=True)
    apply(plan_connect(connection))
    assert entry_in(server_path(connection), agent.servers.table) == {agent.server_name("tea_house"): OVER_HTTP[name]}


@pytest.mark.parametrize("name", [*OVER_HTTP, "zed"])
def test_a_butler_without_keys_needs_none(config, project, name):
    (change, *_) = new_files(connection_of(config, name, None, over_http=True))
    assert URL in str(change.after)
    assert KEY not in str(change.after)


def test_an_agent_that_can_not_read_variables_gets_no_key(tmp_path, project):
    config = make_config(tmp_path, "tea_house", '[butler.auth]\nmode = "keys"\n')
    with pytest.raises(InvalidInput, match="Zed can't read the key of tea_house from a variable"):
        plan_connect(connection_of(config, "zed", project, over_http=True))


def test_claude_desktop_has_no_way_over_http(config):
    with pytest.raises(InvalidInput, match="Claude Desktop starts its servers itself"):
        plan_connect(connection_of(config, "claude-desktop", None, over_http=True))


def test_codex_passes_the_address_of_the_database_on_without_containing_it(config, project, monkeypatch):
    monkeypatch.setenv("BUTLERS_DATABASE_URL", "postgresql://me:hunter2@db/x")
    for name in AGENTS:
        texts = "".join(str(change.after) for change in new_files(connection_of(config, name, None)))
        assert "hunter2" not in texts
        assert ("BUTLERS_DATABASE_URL" in texts) == (name == "codex")


COMMANDS = {
    "claude-code": {"SessionStart": "session-start", "SessionEnd": "session-end"},
    "codex": {"SessionStart": "session-start", "Stop": "turn-end"},
    "gemini": {"SessionStart": "session-start", "AfterAgent": "turn-end"},
    "vscode": {"SessionStart": "session-start", "Stop": "turn-end"},
    "cursor": {"sessionStart": "session-start", "stop": "turn-end"},
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_agent_with_hooks_runs_them_for_itself(config, project, name):
    connection = connection_of(config, name, project)
    apply(plan_connect(connection))
    hooks = json.loads(hook_paths(connection)[0].read_text())["hooks"]
    ending = "" if name == "claude-code" else f" --for {name}"
    for event, hook in COMMANDS[name].items():
        (element,) = hooks[event]
        (handler,) = element["hooks"] if name in {"claude-code", "codex", "gemini"} else [element]
        assert handler["command"].endswith(f" hook {hook} {config.folder.resolve()}{ending}")
        assert handler["timeout"] == (10_000 if name == "gemini" else 10)
    assert set(hooks) == set(COMMANDS[name])


def test_opencode_gets_a_plugin_that_runs_the_hooks(config, project):
    connection = connection_of(config, "opencode", project)
    apply(plan_connect(connection))
    text = (project / ".opencode" / "plugins" / "butlers-tea_house.js").read_text()
    assert json.dumps(str(config.folder.resolve())) in text
    assert '"turn-end"' in text
    assert "BUTLER_NAME" not in text
    assert '"COMMANDS"' not in text


@pytest.mark.parametrize("name", [name for name in AGENTS if isinstance(AGENTS[name].hooks, Plugin)])
def test_a_file_of_somebody_else_in_the_place_of_the_plugin_stays(config, project, name):
    connection = connection_of(config, name, project)
    (path,) = hook_paths(connection)
    path.parent.mkdir(parents=True)
    path.write_text("// mine\n")
    assert plan_remove(connection) == []


def test_hooks_are_brought_up_to_date_in_their_place(config, project):
    path = project / ".codex" / "hooks.json"
    path.parent.mkdir()
    folder = config.folder.resolve()
    own = {"type": "command", "command": f"/old/butlers hook session-start {folder} --for codex", "timeout": 3}
    other = {"type": "command", "command": "echo hello"}
    last = {"hooks": [other]}
    path.write_text(json.dumps({"hooks": {"SessionStart": [{"matcher": "x", "hooks": [own, other]}, last]}}))
    apply(plan_connect(connection_of(config, "codex", project)))
    (group, kept), (added,) = json.loads(path.read_text())["hooks"].values()
    assert (group["matcher"], group["hooks"][1], kept) == ("x", other, last)
    assert group["hooks"][0]["timeout"] == 10
    assert "turn-end" in added["hooks"][0]["command"]
    apply(plan_remove(connection_of(config, "codex", project)))
    assert json.loads(path.read_text()) == {"hooks": {"SessionStart": [{"matcher": "x", "hooks": [other]}, last]}}


def test_a_hook_of_an_event_that_is_not_used_any_more_is_removed(config, project):
    path = project / ".gemini" / "settings.json"
    path.parent.mkdir()
    command = f"/old/butlers hook session-end {config.folder.resolve()} --for gemini"
    path.write_text(json.dumps({"hooks": {"SessionEnd": [{"hooks": [{"type": "command", "command": command}]}]}}))
    apply(plan_connect(connection_of(config, "gemini", project)))
    assert set(json.loads(path.read_text())["hooks"]) == {"SessionStart", "AfterAgent"}


def test_the_files_of_opencode_may_have_comments_in_their_name(config, project):
    (project / "opencode.jsonc").write_text("{}")
    apply(plan_connect(connection_of(config, "opencode", project)))
    assert not (project / "opencode.json").exists()


@pytest.mark.parametrize(
    ("name", "path", "text", "message"),
    [
        ("codex", ".codex/config.toml", "x = ", "is not TOML"),
        ("codex", ".codex/config.toml", "mcp_servers.tea_house.url = 'x'\n", "can't be edited"),
        ("codex", ".codex/config.toml", "mcp_servers = 1\n", "mcp_servers is not an object"),
        ("codex", ".codex/hooks.json", '{"hooks": {"Stop": {}}}', "hooks.Stop is not a list"),
        ("gemini", ".gemini/settings.json", '{"mcpServers": []}', "mcpServers is not an object"),
        ("gemini", ".gemini/settings.json", "[]", "is not a JSON object"),
        ("cursor", ".cursor/hooks.json", '{"hooks": 1}', "hooks is not an object"),
    ],
)
def test_a_file_that_can_not_be_edited_is_left_alone_with_a_way_out(config, project, name, path, text, message):
    (project / path).parent.mkdir(parents=True)
    (project / path).write_text(text)
    with pytest.raises(ConfigurationFault, match=message) as fault:
        plan_connect(connection_of(config, name, project))
    assert str(project / path) in fault.value.message
    assert fault.value.hint.endswith("then connect again.")


def test_yaml_that_is_no_mapping_is_left_alone(config, owner):
    path = owner / ".config" / "goose" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("- a\n")
    with pytest.raises(ConfigurationFault, match="not a YAML mapping"):
        plan_connect(connection_of(config, "goose", None))


def test_variables_move_the_files_of_the_user(config, owner, tmp_path, monkeypatch):
    for name, variable, path in (
        ("codex", "CODEX_HOME", "config.toml"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/opencode.json"),
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / name))
        assert server_path(connection_of(config, name, None)) == tmp_path / name / path


@pytest.mark.parametrize(("platform", "path"), [("linux", ".config"), ("darwin", "Library/Application Support")])
def test_applications_have_their_folder_where_the_system_wants_it(owner, platform, path):
    folder = UserFolder(".config", "XDG_CONFIG_HOME", "Library/Application Support")
    assert folder.locate(platform) == owner / path


def test_a_program_that_uvx_has_unpacked_is_started_by_uvx():
    *_, source, package, program = program_command("/cache/uv/archive-v0/47SiBcHJVVVbB8Wl")
    assert (source, package.partition("==")[0], program) == ("--from", "butlers", "butlers")


# Writing


def test_a_file_that_somebody_changes_meanwhile_is_not_overwritten(config, project):
    (project / ".mcp.json").write_text("{}")
    changes = plan_connect(connection_of(config, "claude-code", project))
    (project / ".mcp.json").write_text('{"mine": 1}')
    with pytest.raises(Conflict, match="has changed meanwhile"):
        apply(changes)
    assert (project / ".mcp.json").read_text() == '{"mine": 1}'


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(config, owner, tmp_path):
    real = tmp_path / "dotfiles.toml"
    real.write_text("a = 1\n")
    real.chmod(0o600)
    (owner / ".codex").mkdir()
    (owner / ".codex" / "config.toml").symlink_to(real)
    apply(plan_connect(connection_of(config, "codex", None)))
    assert (owner / ".codex" / "config.toml").is_symlink()
    assert "mcp_servers" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_text("{}")
    with pytest.raises(UnicodeEncodeError):
        FileChange(folder / "a.json", "{}", '{"a": "\ud800"}', folder).apply()
    assert [path.name for path in folder.iterdir()] == ["a.json"]
    assert (folder / "a.json").read_text() == "{}"


def test_folders_that_others_use_stay(config, project):
    (project / ".github").mkdir()
    (project / ".github" / "CODEOWNERS").write_text("*\n")
    connection = connection_of(config, "vscode", project)
    apply(plan_connect(connection))
    apply(plan_remove(connection))
    assert sorted(path.name for path in project.rglob("*")) == [".github", "CODEOWNERS"]


# The command


def test_the_command_says_what_is_left_to_do(butlers, config, project, owner):
    words = ("connect", config.folder, "codex", "--project", project)
    done = butlers(*words, HOME=str(owner))
    assert (done.returncode, done.stderr) == (0, "")
    assert "approve the two hooks with /hooks" in done.stdout
    assert "+[mcp_servers.tea_house]\n" in done.stdout
    removed = butlers(*words, "--remove", HOME=str(owner))
    assert f"removed {project / '.codex' / 'config.toml'}\n" in removed.stdout
    assert list(project.iterdir()) == []


def test_the_command_prints_the_files_and_writes_nothing(butlers, config, project, owner):
    done = butlers("connect", config.folder, "codex", "--project", project, "--print", HOME=str(owner))
    servers, hooks = done.stdout.split(f"# {project / '.codex' / 'hooks.json'}\n")
    assert servers.startswith(f"# {project / '.codex' / 'config.toml'}\n[mcp_servers.tea_house]\n")
    assert set(json.loads(hooks)["hooks"]) == {"SessionStart", "Stop"}
    assert list(project.iterdir()) == []
    as_json = butlers("connect", config.folder, "goose", "--print", "--json", HOME=str(owner))
    (file,) = json.loads(as_json.stdout)
    assert file["file"] == str(owner / ".config" / "goose" / "config.yaml")
    assert yaml.safe_load(file["text"])["extensions"]["tea_house"]["type"] == "stdio"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("goose", "--project", "."), "Goose has no settings of a project"),
        (("codex", "--project", ".", "--user"), "--project and --user exclude each other"),
        (("codex", "--local"), "Codex has no settings that are not shared"),
    ],
)
def test_options_that_an_agent_does_not_have_are_refused(butlers, config, project, owner, words, message):
    refused = butlers("connect", config.folder, *words, cwd=project, HOME=str(owner))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"butlers: {message}. ")
    assert files(project, owner) == {}


def test_an_agent_named_alone_is_that_of_this_folder(butlers, config, owner):
    done = butlers("connect", "zed", "--print", cwd=config.folder, HOME=str(owner))
    assert "context_servers" in done.stdout


def test_every_agent_has_a_fault_for_files_it_does_not_have(config, project):
    with pytest.raises(Fault):
        plan_connect(connection_of(config, "goose", project))
