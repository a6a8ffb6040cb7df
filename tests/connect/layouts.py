"""Settings files in every layout: hypothesis strategies for JSON with comments, TOML and YAML."""

import json

from hypothesis import strategies as st

_BLANKS = [" ", "\n", "\t", "  ", "\n\n", "/* c */", "// c \n", "\r\n"]
blanks = st.lists(st.sampled_from(_BLANKS), max_size=3).map("".join)
scalars = st.sampled_from(['"text"', "1", "-2.5e3", "true", "null", '"\\u00e9 // no comment"', '"a\\"b"', "[]", "{}"])


@st.composite
def containers(draw, items, brackets):
    """A container of these items, with white space, comments and a trailing comma."""
    text = ""
    for index, item in enumerate(items):
        text += ("," if index else "") + draw(blanks) + draw(item) + draw(blanks)
    comma = "," if items and draw(st.booleans()) else ""
    return brackets[0] + text + comma + draw(blanks) + brackets[1]


@st.composite
def members(draw, key, value):
    """A member of an object."""
    return json.dumps(key) + draw(blanks) + ":" + draw(blanks) + draw(value)


def objects(values):
    """An object with these values by key, in any order and with some missing."""
    keys = st.lists(st.sampled_from(list(values)), unique=True, max_size=len(values))
    return keys.flatmap(lambda keys: containers([members(key, values[key]) for key in keys], "{}"))


arrays = st.integers(0, 2).flatmap(lambda count: containers([scalars] * count, "[]"))
groups = st.integers(0, 2).flatmap(
    lambda count: containers([objects({"matcher": scalars, "hooks": arrays})] * count, "[]")
)
json_files = st.tuples(
    blanks,
    objects(
        {
            "other": scalars,
            "mcpServers": objects({"a": scalars, "b": objects({"command": scalars, "args": arrays})}),
            "hooks": objects({"SessionStart": groups, "Notification": groups}),
            "last": arrays,
        }
    ),
    blanks,
).map("".join)

_TOML_PARTS = [
    "a = 1\n",
    "# comment\n",
    "\n",
    'text = """\n[not.a.table]\n"""\n',
    "raw = '''\n[neither]\n'''\n",
    'list = [\n  "[x]", # ]\n  ["y"],\n]\n',
    "inline = { b = '}' }\n",
]
_TOML_TABLES = [
    "[table]\n",
    "[mcp_servers.other]\ncommand = 'x'\n",
    '[projects."/a.b [c]"] # why\ntrust_level = "trusted"\n',
    "[[hooks.Stop]]\nx = 1\n",
    "[mcp_servers]\n",
    "  [indented.table]\n  y = 2\n",
]


@st.composite
def toml_files(draw):
    """A TOML file, or an empty one, with or without a line break at the end."""
    parts = draw(st.lists(st.sampled_from(_TOML_PARTS), unique=True, max_size=4))
    for table in draw(st.lists(st.sampled_from(_TOML_TABLES), unique=True, max_size=4)):
        parts += [table, *draw(st.lists(st.sampled_from(["\n", "# note\n", "\n\n"]), max_size=2))]
    text = "".join(parts)
    text = text if draw(st.booleans()) else text.removesuffix("\n")
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


_YAML_PARTS = [
    "GOOSE_MODEL: x\n",
    "# comment\n",
    "\n",
    "text: |-\n  extensions:\n    no: 1\n",
    "list:\n- a\n- b: 1\n",
    "flow: {a: [1, 2]}\n",
]
_YAML_TABLES = [
    "",
    "extensions:\n",
    "extensions: {}\n",
    "extensions: { a: {b: 1} }\n",
    "extensions:\n  # mine\n  developer:\n    type: builtin # built in\n\n    name: developer\n",
    "extensions:\n    a: {b: 1}\n\n\n",
    "extensions: # all of them\n  a:\n    b: |-\n      text\n",
]


@st.composite
def yaml_files(draw):
    """A YAML mapping, or an empty file, with or without a line break at the end."""
    before = draw(st.lists(st.sampled_from(_YAML_PARTS), unique=True, max_size=3))
    table = draw(st.sampled_from(_YAML_TABLES))
    after = draw(st.lists(st.sampled_from([p for p in _YAML_PARTS if p not in before]), unique=True, max_size=3))
    text = "".join([*before, table, *after])
    text = text if draw(st.booleans()) else text.removesuffix("\n")
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text
