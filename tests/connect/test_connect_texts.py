"""Edits of settings files as text: a removal undoes an addition to the byte, and nothing else changes."""

import json
import tomllib

import pytest
import yaml
from hypothesis import given, settings

from butlers.connect import json_text, toml_text, yaml_text
from butlers.connect.json_syntax import JsonSyntaxError, JsonTooDeep, parse
from butlers.connect.toml_text import TomlLayoutError
from butlers.connect.yaml_text import YamlLayoutError

from .layouts import json_files, toml_files, yaml_files

SERVER = ("mcpServers", "home")
ENTRY = {"command": "/opt/butlers", "args": ["run", "/a b", "--stdio"], "env": {"BUTLERS_HOME": "/d"}}
OTHER_ENTRY = {"url": "http://127.0.0.1:8101/mcp"}
OWN = {"hooks": [{"type": "command", "command": "own"}]}
EVENTS = ("SessionStart", "Stop")
thorough = settings(max_examples=100, deadline=None)


def connect(text, defaults):
    text = json_text.set_member(text, SERVER, ENTRY, defaults)
    for event in EVENTS:
        text = json_text.append_element(text, ("hooks", event), OWN, defaults)
    return text


def remove(text, defaults):
    for event in reversed(json_text.value_of(text)["hooks"]):
        text = json_text.change_elements(text, ("hooks", event), lambda each: None if each == OWN else each, defaults)
    return text and json_text.remove_member(text, SERVER, defaults)


@thorough
@given(json_files)
def test_json_is_as_before_after_a_removal_and_has_everything_else_meanwhile(text):
    before, after = json_text.value_of(text), connect(text, {})
    value = json_text.value_of(after)
    assert value["mcpServers"].pop("home") == ENTRY
    assert [value["hooks"][event].pop() for event in EVENTS] == [OWN, OWN]
    assert {**value, "hooks": {k: v for k, v in value["hooks"].items() if v}} == {
        "mcpServers": {},
        **before,
        "hooks": {k: v for k, v in before.get("hooks", {}).items() if v},
    }
    assert remove(after, {}) == text


@thorough
@given(json_files)
def test_json_with_another_value_is_as_before_after_a_removal(text):
    after = json_text.set_member(text, SERVER, ENTRY)
    changed = json_text.set_member(after, SERVER, OTHER_ENTRY)
    assert json_text.value_of(changed)["mcpServers"]["home"] == OTHER_ENTRY
    assert json_text.remove_member(changed, SERVER) == text


@thorough
@given(json_files)
def test_the_syntax_tree_has_the_value_of_the_json(text):
    (node,) = [parse(text)]
    assert node
    rendered = json.dumps(node.value)
    assert json_text.value_of(rendered) == node.value
    assert json.loads(rendered) == node.value


@pytest.mark.parametrize("defaults", [{}, {"version": 1}], ids=["no defaults", "defaults"])
@pytest.mark.parametrize("text", [None, "", "\n", "{}", "{ }\n", "{\n}\n", "\ufeff{}", '{"version": 1}'])
def test_a_file_without_content_is_as_before_after_a_removal(text, defaults):
    assert remove(connect(text, defaults), defaults) == text


def test_a_new_file_has_the_layout_that_everybody_writes():
    text = connect(None, {})
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


def test_json_in_one_line_stays_in_one_line():
    text = json_text.set_member('{"mcpServers": {"a": 1}}', SERVER, {"b": 2})
    assert text == '{"mcpServers": {"a": 1, "home": {"b": 2}}}'


def test_a_comment_stays_with_its_member():
    text = '{\n\t"mcpServers": {\n\t\t"a": 1 // the first\n\t}\n}\n'
    assert json_text.set_member(text, SERVER, 2) == (
        '{\n\t"mcpServers": {\n\t\t"a": 1, // the first\n\t\t"home": 2\n\t}\n}\n'
    )


def test_what_others_have_written_behind_an_entry_stays():
    text = json_text.set_member('{"mcpServers": {"a": 1}}', SERVER, 2).replace("2", '2, "z": 3 /* z */')
    assert json_text.remove_member(text, SERVER) == '{"mcpServers": {"a": 1, "z": 3 /* z */}}'


@pytest.mark.parametrize(
    "text",
    ["{", "[1", '{"a"}', '{"a": }', "{'a': 1}", '{"a": 1} x', '{"a": 01}', '{"a": "\x01"}', "{,}", "[1 2]", "nul"],
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(JsonSyntaxError):
        parse(text)


@pytest.mark.parametrize("depth", [101, 5_000, 200_000])
def test_json_that_is_nested_too_deeply_is_refused(depth):
    with pytest.raises(JsonTooDeep):
        parse("[" * depth)


TABLE = ("mcp_servers", "home")


@thorough
@given(toml_files())
def test_toml_is_as_before_after_a_removal_and_has_everything_else_meanwhile(text):
    before = tomllib.loads(text)
    after = toml_text.set_table(text, TABLE, ENTRY)
    value = tomllib.loads(after)
    assert value["mcp_servers"].pop("home") == ENTRY
    assert value == {"mcp_servers": {}, **before}
    assert toml_text.remove_table(after, TABLE) == text
    changed = toml_text.set_table(after, TABLE, OTHER_ENTRY)
    assert tomllib.loads(changed)["mcp_servers"]["home"] == OTHER_ENTRY
    assert toml_text.remove_table(changed, TABLE) == text


def test_a_new_toml_file_is_gone_after_a_removal():
    assert toml_text.remove_table(toml_text.set_table(None, TABLE, ENTRY), TABLE) is None


def test_what_codex_adds_behind_the_table_stays():
    trust = '\n[hooks.state."/a/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:1"\n'
    text = toml_text.set_table("a = 1\n", TABLE, ENTRY) + trust
    assert toml_text.remove_table(text, TABLE) == "a = 1\n" + trust


def test_tables_below_the_removed_one_are_removed():
    text = toml_text.set_table("a = 1\n", TABLE, ENTRY) + '\n[mcp_servers.home.tools.x]\napproval_mode = "approve"\n'
    assert tomllib.loads(toml_text.remove_table(text, TABLE) or "") == {"a": 1}


@pytest.mark.parametrize("value", ["a\tb\n\x7f\x00", 'quote " and \\', "é\u2028", "'''"])
def test_any_text_is_written_as_toml(value):
    text = toml_text.set_table(None, TABLE, {"command": value, "env": {"strange key": value}})
    assert tomllib.loads(text)["mcp_servers"]["home"] == {"command": value, "env": {"strange key": value}}


@pytest.mark.parametrize(
    "text",
    ['mcp_servers = { home = { url = "x" } }\n', 'mcp_servers.home.url = "x"\n', '[mcp_servers]\nhome = {url="x"}\n'],
)
def test_a_table_in_a_form_that_can_not_be_edited_is_left_alone(text):
    with pytest.raises(TomlLayoutError):
        toml_text.set_table(text, TABLE, ENTRY)
    with pytest.raises(TomlLayoutError):
        toml_text.remove_table(text, TABLE)


@thorough
@given(yaml_files())
def test_yaml_is_as_before_after_a_removal_and_has_everything_else_meanwhile(text):
    before = yaml.safe_load(text) or {}
    after = yaml_text.set_entry(text, "extensions", "home", ENTRY)
    value = yaml.safe_load(after)
    assert value["extensions"].pop("home") == ENTRY
    assert value == {**before, "extensions": before.get("extensions") or {}}
    assert yaml_text.remove_entry(after, "extensions", "home") == text
    changed = yaml_text.set_entry(after, "extensions", "home", OTHER_ENTRY)
    assert yaml.safe_load(changed)["extensions"]["home"] == OTHER_ENTRY
    assert yaml_text.remove_entry(changed, "extensions", "home") == text


def test_a_new_yaml_file_is_gone_after_a_removal():
    text = yaml_text.set_entry(None, "extensions", "home", ENTRY)
    assert yaml_text.remove_entry(text, "extensions", "home") is None


@pytest.mark.parametrize(
    "text", ["- a\n", "extensions: [1]\n", "extensions: ~\n", "a: 1\n---\nb: 2\n", "&x {", "a: 1\n...", "a: |\n  b"]
)
def test_yaml_that_can_not_be_edited_is_left_alone(text):
    with pytest.raises(YamlLayoutError):
        yaml_text.set_entry(text, "extensions", "home", ENTRY)
