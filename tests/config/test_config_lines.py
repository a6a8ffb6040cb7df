"""Line numbers of keys in a TOML file."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.toml_diagnostics import Key, KeyLines, dotted_key

FILE = '''\
# a comment with [a.header] and key = 1
top = 1
[butler]
name = "b"   # = [x]
  "quoted key" . 'other' = 2
auth.mode = "local"
text = """
[fooled]
name = 5
\\""" still inside
"""
literal = \'\'\'
[[fooled.again]]
\'\'\'
empty = ""
hosts = [
  "a", # one, two ]
  # three
  "b,c", [
    1, 2],
  { x = 1, y = "}" },
]
inline = { a = { b = 1 }, "c.d" = [1, 2] }
after = 1

[[butler.schedule]]
name = "one"
[[ butler . "schedule" ]]
name = "two"
[butler.schedule.deeper]
key = 1
[butler.database.pool]
[butler.database]
size = 1
["esc\\u0061ped"]
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("top",), 2),
        (("butler",), 3),
        (("butler", "name"), 4),
        (("butler", "quoted key"), 5),
        (("butler", "quoted key", "other"), 5),
        (("butler", "auth", "mode"), 6),
        (("butler", "auth"), 6),
        (("butler", "text"), 7),
        (("butler", "literal"), 12),
        (("butler", "empty"), 15),
        (("butler", "hosts"), 16),
        (("butler", "hosts", 0), 17),
        (("butler", "hosts", 1), 19),
        (("butler", "hosts", 2), 19),
        (("butler", "hosts", 3), 21),
        (("butler", "hosts", 3, "x"), 21),
        (("butler", "inline"), 23),
        (("butler", "inline", "a", "b"), 23),
        (("butler", "after"), 24),
        (("butler", "schedule"), 26),
        (("butler", "schedule", 0), 26),
        (("butler", "schedule", 0, "name"), 27),
        (("butler", "schedule", 1), 28),
        (("butler", "schedule", 1, "name"), 29),
        (("butler", "schedule", 1, "deeper"), 30),
        (("butler", "schedule", 1, "deeper", "key"), 31),
        (("butler", "schedule", 1, "missing"), 28),
        (("butler", "database", "pool"), 32),
        (("butler", "database"), 33),
        (("butler", "database", "size"), 34),
        (("escaped",), 35),
        (("butler", "missing"), 3),
        (("fooled",), None),
        (("missing",), None),
        ((), None),
    ],
)
def test_a_key_is_found_on_its_line_or_on_that_of_the_nearest_enclosing_key(key: Key, line: int | None) -> None:
    assert tomllib.loads(FILE)
    assert KeyLines(FILE).line_of(key) == line
    assert KeyLines(FILE.replace("\n", "\r\n")).line_of(key) == line


@pytest.mark.parametrize("quotes", ['"""', "'''"])
@pytest.mark.parametrize("inside", ["", "Q", "QQ", "a\n", "aQ\n[x]\nQQ", "#", "]\n}"])
def test_the_key_after_a_string_is_found(quotes: str, inside: str) -> None:
    text = f"a = {quotes}{inside.replace('Q', quotes[0])}{quotes}\nb = 1\n"
    assert tomllib.loads(text)["b"] == 1
    assert KeyLines(text).line_of(("b",)) == text.count("\n")


def test_a_dotted_key_quotes_names_where_toml_does() -> None:
    assert dotted_key(("butler", "schedule", 1, "cron")) == "butler.schedule[1].cron"
    assert dotted_key(("a b", 'c"d')) == '"a b"."c\\"d"'


NAMES = st.text(st.sampled_from("abAB_-. #='\"[]\\\n"), min_size=0, max_size=5)
VALUES = st.recursive(
    st.sampled_from(["1", "true", "1.5", "1979-05-27", '"a"', "'''\n[t]\nx = 1\n'''", '"""\n\\"""]\n"""', '"#"']),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[ # [\n" + ",\n".join(items) + "\n]"),
    max_leaves=5,
)


def quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_every_key_of_any_file_is_found(tables: dict[str, dict[str, str]]) -> None:
    text = ""
    expected: dict[Key, int] = {}
    for table, keys in tables.items():
        expected[(table,)] = text.count("\n") + 1
        text += f"[{quoted(table)}] # x = 1\n"
        for key, value in keys.items():
            expected[table, key] = text.count("\n") + 1
            text += f"{quoted(key)} = {value} # [y]\n\n"
    assert tomllib.loads(text).keys() == tables.keys()
    lines = KeyLines(text)
    assert {key: lines.line_of(key) for key in expected} == expected
