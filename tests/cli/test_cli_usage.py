"""The help of every command, and wrong usage."""

import pytest
import typer
from typer.testing import CliRunner

from butlers.cli import app
from butlers.environment import _VARIABLES

ROOT = typer.main.get_command(app)


def every(command, path=()):
    """Yield all commands and groups with their paths."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from every(inner, (*path, name))


COMMANDS = dict(every(ROOT))
LEAVES = {path: command for path, command in COMMANDS.items() if not hasattr(command, "commands")}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_has_an_example_of_the_command_itself(path):
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    example = shown.output.split("Example:", 1)[1]
    assert f"butlers {' '.join(path)}" in example or (path == ("dsn",) and "butlers dsn" in example)


# A model serves all butlers of the user.
WITHOUT_FOLDER = {("model", "install")}


@pytest.mark.parametrize("path", [path for path in LEAVES if path not in WITHOUT_FOLDER], ids=" ".join)
def test_the_folder_comes_first_and_may_be_left_out_where_nothing_follows(path):
    words = [each for each in LEAVES[path].params if each.param_type_name == "argument"]
    assert words[0].name == "folder"
    required = [option for option in LEAVES[path].params if option.param_type_name == "option" and option.required]
    # The client may be named without the butler in the current folder.
    alone = (len(words) == 1 and not required and path != ("init",)) or path == ("connect",)
    assert words[0].required is not alone


@pytest.mark.parametrize("path", [path for path in LEAVES if path != ("run",) and path[0] != "hook"], ids=" ".join)
def test_every_command_with_results_has_json(path):
    assert "--json" in {option for each in LEAVES[path].params for option in each.opts}


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["run", ".", "--colour"],
        ["run", ".", "--port", "many"],
        ["run", ".", "--port", "70000"],
        ["init"],
        ["key", "create", "."],
        ["key", "revoke", "."],
        ["dsn", "a", "b"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(butlers, words):
    refused = butlers(*words)
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "Usage:" in refused.stderr


def test_no_arguments_list_the_commands(butlers):
    shown = butlers()
    for path in LEAVES:
        assert path[0] in shown.stdout + shown.stderr


def test_the_help_names_every_variable_and_exit_code(butlers):
    shown = butlers("--help").stdout
    assert [name for name in _VARIABLES if name not in shown] == []
    assert "Exit status" in shown


@pytest.mark.parametrize(
    ("words", "found"),
    [("butlers conn", "connect"), ("butlers connect . cod", "codex"), ("butlers memory rec", "recall")],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_agents(butlers, shell, words, found):
    before = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    completed = butlers(_BUTLERS_COMPLETE=f"complete_{shell}", **before)
    assert found in completed.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_the_completion_is_shown(butlers, shell):
    shown = butlers("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert (shown.returncode, "_BUTLERS_COMPLETE" in shown.stdout) == (0, True), shown.stderr
