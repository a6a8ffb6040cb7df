"""Refusals of a bad butler.toml: each problem with its line, its key and the allowed values."""

from collections.abc import Callable
from pathlib import Path

import pytest

from butlers.config import ModuleConfig, load
from butlers.errors import ConfigurationFault
from butlers.modules.memory.config import MemoryModuleConfig

MODELS: dict[str, type[ModuleConfig]] = {"memory": MemoryModuleConfig}
ProblemsIn = Callable[[str], list[str]]
Case = tuple[str, int | None, str, str]


@pytest.fixture
def problems_in(tmp_path: Path) -> ProblemsIn:
    """A function that loads a butler.toml that must be refused, and returns its problems."""

    def load_text(text: str) -> list[str]:
        (tmp_path / "butler.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationFault) as caught:
            load(tmp_path, MODELS)
        return caught.value.message.splitlines()

    return load_text


# (text of the file, expected line, expected key, expected part of the message)
BUTLER: list[Case] = [
    ("", None, "butler.name", "is required"),
    ("[butler]", 1, "butler.name", "is required"),
    ('[butler]\nname = "Health"', 2, "butler.name", "'Health' can't name a butler: 1 to 40 of a-z"),
    (f'[butler]\nname = "{"a" * 41}"', 2, "butler.name", "1 to 40"),
    ('[butler]\nname = "1st"', 2, "butler.name", "a letter first"),
    ("butler = 5", 1, "butler", "expected a table, got 5"),
    ("[[butler]]", 1, "butler", "expected a table, got a list"),
]
# The same, under [butler] with a good name on lines 1 and 2.
FURTHER: list[Case] = [
    ("port = 70000", 3, "butler.port", "must be at most 65535, got 70000"),
    ("port = -1", 3, "butler.port", "must be at least 0, got -1"),
    ('port = "5"', 3, "butler.port", "expected a whole number, got the text '5'"),
    ("port = true", 3, "butler.port", "expected a whole number, got true"),
    ("port = 5.0", 3, "butler.port", "expected a whole number, got 5.0"),
    ("port = nan", 3, "butler.port", "expected a whole number, got nan"),
    (f"port = 0x{'f' * 9000}", 3, "butler.port", "must be at most 65535, got an enormous number"),
    ("description = 1979-05-27", 3, "butler.description", "expected text, got the date or time 1979-05-27"),
    (
        "prot = 1",
        3,
        "butler.prot",
        "is not a known key; did you mean port? known here: name, description, port",
    ),
    ('"a b\\n" = 1', 3, 'butler."a b\\n"', "is not a known key; known here: name"),
    ("[butlers]", 3, "butlers", "did you mean butler? known here: butler, modules"),
    ("[butler.database]\nurl = 5", 4, "butler.database.url", "expected text, got 5"),
    ('[butler.database]\nurl = "mysql://h/d"', 4, "butler.database.url", "must start with postgresql://"),
    ("[butler.database]\npool_size = 0", 4, "butler.database.pool_size", "must be at least 1, got 0"),
    ("[butler.database]\npool_size = 201", 4, "butler.database.pool_size", "must be at most 200, got 201"),
    ('[butler.http]\nhost = "0.0.0.0"', 4, "butler.http.host", "127.0.0.1, ::1 and localhost are allowed"),
    ('[butler.http]\nhost = "example.org"', 4, "butler.http.host", "is not a loopback address"),
    ('[butler.http]\nhost = ""', 4, "butler.http.host", "must not be blank"),
    (
        '[butler.http]\nallowed_hosts = "h"',
        4,
        "butler.http.allowed_hosts",
        "expected a list, got the text 'h'",
    ),
    (
        '[butler.http]\nallowed_origins = [\n"h",\n5]',
        6,
        "butler.http.allowed_origins[1]",
        "expected text, got 5",
    ),
    ("[butler.limits]\ncalls_per_second = 0", 4, "butler.limits.calls_per_second", "must be above 0"),
    (
        "[butler.limits]\ncalls_per_second = inf",
        4,
        "butler.limits.calls_per_second",
        "finite number, got inf",
    ),
    (
        "[butler.limits]\ncalls_per_second = nan",
        4,
        "butler.limits.calls_per_second",
        "finite number, got nan",
    ),
    (
        "[butler.limits]\ncalls_per_second = true",
        4,
        "butler.limits.calls_per_second",
        "expected a number, got true",
    ),
    (
        '[butler.limits]\ngrace_seconds = "5"',
        4,
        "butler.limits.grace_seconds",
        "expected a number, got the text '5'",
    ),
    ("[butler.limits]\ngrace_seconds = -1", 4, "butler.limits.grace_seconds", "must be at least 0"),
    ("[butler.limits]\ncall_timeout_seconds = 0", 4, "butler.limits.call_timeout_seconds", "must be above 0"),
    ("[butler.limits]\nburst = 0", 4, "butler.limits.burst", "must be at least 1"),
    ("[butler.limits]\nmax_body_bytes = 1023", 4, "butler.limits.max_body_bytes", "must be at least 1024"),
    (
        "[butler.limits]\nmax_body_bytes = 4194305",
        4,
        "butler.limits.max_body_bytes",
        "must be at most 4194304",
    ),
    ("[butler.limits]\nmax_connections = 15", 4, "butler.limits.max_connections", "must be at least 16"),
    ("[butler.limits]\nmax_connections = 65537", 4, "butler.limits.max_connections", "must be at most 65536"),
    ("[butler.limits]\nhead_timeout_seconds = 0", 4, "butler.limits.head_timeout_seconds", "must be above 0"),
    ("[butler.limits]\nbody_timeout_seconds = 0", 4, "butler.limits.body_timeout_seconds", "must be above 0"),
    ("[butler.limits]\nkeep_alive_seconds = 0", 4, "butler.limits.keep_alive_seconds", "must be at least 1"),
]
AUTH: list[Case] = [
    ('mode = "open"', 4, "mode", "'open' is not one of local, keys, jwt"),
    ("mode = 5", 4, "mode", "5 is not one of local, keys, jwt"),
    ('tenant = "a b"', 4, "tenant", "'a b' can't name a tenant: a tenant name is 1 to 128 letters"),
    ('algorithm = "HS256"', 4, "algorithm", "'HS256' is not one of RS256, RS384"),
    ('mode = "jwt"\nalgorithm = "none"', 5, "algorithm", "'none' is not one of RS256"),
    ('issuer = "i"', 4, "issuer", 'is allowed with mode = "jwt" only, and the mode is "local"'),
    ('mode = "keys"\naudience = "a"', 5, "audience", 'and the mode is "keys"'),
    ('mode = "keys"\njwks_uri = "https://h/k"', 5, "jwks_uri", 'is allowed with mode = "jwt" only'),
    ('public_key = "-----BEGIN PUBLIC KEY-----"', 4, "public_key", 'is allowed with mode = "jwt" only'),
    ('algorithm = "RS256"', 4, "algorithm", 'is allowed with mode = "jwt" only'),
    ('tenant_claim = "t"', 4, "tenant_claim", 'is allowed with mode = "jwt" only'),
    ('roles_claim = "t"', 4, "roles_claim", 'is allowed with mode = "jwt" only'),
    ('elevated_claim = "t"', 4, "elevated_claim", 'is allowed with mode = "jwt" only'),
    ('mode = "jwt"', 3, "issuer", 'is required with mode = "jwt"'),
    ('mode = "jwt"', 3, "audience", 'is required with mode = "jwt"'),
    ('mode = "jwt"', 3, "jwks_uri", "exactly one of jwks_uri and public_key, and neither is given"),
    (
        'mode = "jwt"\njwks_uri = "https://h/k"\npublic_key = "-----BEGIN PUBLIC KEY-----"',
        5,
        "jwks_uri",
        "exactly one of jwks_uri and public_key, and both are given",
    ),
    ('mode = "jwt"\njwks_uri = "ftp://h/k"', 5, "jwks_uri", "https://… and http://… are allowed"),
    ('mode = "jwt"\npublic_key = "abc"', 5, "public_key", "PEM text"),
    ('mode = "jwt"\npublic_key = "-----BEGIN PRIVATE KEY-----"', 5, "public_key", "is not a public key"),
    ('mode = "jwt"\nissuer = " "', 5, "issuer", "must not be blank"),
]
RUNTIME: list[Case] = [
    ('type = "gpt"', 4, "type", "'gpt' is not one of claude, command, openai"),
    ('type = "command"', 3, "command", 'is required with type = "command"'),
    ('type = "command"\ncommand = []', 5, "command", 'is required with type = "command"'),
    ("command = []", 4, "command", 'is required with type = "claude"'),
    ('command = "claude"', 4, "command", "expected a list, got the text 'claude'"),
    ('command = ["claude", ""]', 4, "command[1]", "must not be blank"),
    ('type = "openai"\ncommand = ["x"]', 5, "command", 'type = "claude" or "command" only'),
    ('type = "openai"', 3, "base_url", 'is required with type = "openai"'),
    ('type = "openai"', 3, "model", 'is required with type = "openai"'),
    ('type = "openai"\nbase_url = "localhost"', 5, "base_url", "https://… and http://… are allowed"),
    ('type = "openai"\napi_key_env = "sk-1"', 5, "api_key_env", "letters, digits and _ are allowed"),
    (
        'base_url = "http://h/v1"',
        4,
        "base_url",
        'is allowed with type = "openai" only, and the type is "claude"',
    ),
    ('model = "m"', 4, "model", 'is allowed with type = "openai" only'),
    ('type = "command"\ncommand = ["x"]\napi_key_env = "K"', 6, "api_key_env", 'and the type is "command"'),
    ("timeout_seconds = 0", 4, "timeout_seconds", "must be above 0, got 0"),
]
MEMORY: list[Case] = [
    ("enabled = 1", 4, "enabled", "expected true or false, got 1"),
    ('optional = "yes"', 4, "optional", "expected true or false, got the text 'yes'"),
    ("episode_ttl_day = 1", 4, "episode_ttl_day", "did you mean episode_ttl_days?"),
    ("episode_ttl_days = 0", 4, "episode_ttl_days", "must be at least 1"),
    ("episode_ttl_days = 3651", 4, "episode_ttl_days", "must be at most 3650"),
    ("max_episodes = 0", 4, "max_episodes", "must be at least 1"),
    ('toolset = "all"', 4, "toolset", "'all' is not one of core, full"),
    ("retrieval.default_limit = 0", 4, "retrieval.default_limit", "must be at least 1"),
    ("retrieval.default_limit = 101", 4, "retrieval.default_limit", "must be at most 100"),
    ("retrieval.context_token_budget = 63", 4, "retrieval.context_token_budget", "must be at least 64"),
    (
        "retrieval.context_token_budget = 100001",
        4,
        "retrieval.context_token_budget",
        "must be at most 100000",
    ),
    (
        'retrieval.default_mode = "both"',
        4,
        "retrieval.default_mode",
        "is not one of semantic, keyword, hybrid, blended",
    ),
    ("retrieval.min_confidence = 1.1", 4, "retrieval.min_confidence", "must be at most 1"),
    ("retrieval.score_weights = 5", 4, "retrieval.score_weights", "expected a table, got 5"),
    ("retrieval.score_weights.relevance = -1", 4, "retrieval.score_weights.relevance", "must be at least 0"),
    (
        "retrieval.score_weights = { recency = nan }",
        4,
        "retrieval.score_weights.recency",
        "finite number, got nan",
    ),
    (
        "retrieval.score_weights = { recency = inf }",
        4,
        "retrieval.score_weights.recency",
        "finite number, got inf",
    ),
    (
        "retrieval.score_weights = { recensy = 1 }",
        4,
        "retrieval.score_weights.recensy",
        "did you mean recency?",
    ),
    (
        "retrieval.score_weights = { relevance = 0, importance = 0, recency = 0, confidence = 0 }",
        4,
        "retrieval.score_weights",
        "at least one must be above 0",
    ),
    (
        "retrieval.score_weights = { relevance = 1e308, recency = 1e308 }",
        4,
        "retrieval.score_weights",
        "their sum must be finite",
    ),
    ("retrieval.section_quotas.facts = 1.1", 4, "retrieval.section_quotas.facts", "must be at most 1"),
    ("retrieval.section_quotas.rules = -0.1", 4, "retrieval.section_quotas.rules", "must be at least 0"),
    (
        "retrieval.section_quotas = { facts = 0.9 }",
        4,
        "retrieval.section_quotas",
        "make 1.3, but their sum must be at most 1",
    ),
    ("confidence.fading_below = 1.5", 4, "confidence.fading_below", "must be at most 1"),
    ("confidence.expired_below = -0.1", 4, "confidence.expired_below", "must be at least 0"),
    (
        "confidence.expired_below = 0.2",
        4,
        "confidence.expired_below",
        "must be below fading_below (0.2), got 0.2",
    ),
    ("confidence.fading_below = 0.01", 4, "confidence.expired_below", "must be below fading_below (0.01)"),
    ("consolidation.batch_size = 0", 4, "consolidation.batch_size", "must be at least 1"),
    ("consolidation.batch_size = 501", 4, "consolidation.batch_size", "must be at most 500"),
    ("consolidation.max_attempts = 0", 4, "consolidation.max_attempts", "must be at least 1"),
    ("consolidation.max_attempts = 21", 4, "consolidation.max_attempts", "must be at most 20"),
    ('schedule.consolidate = "hourly"', 4, "schedule.consolidate", "'hourly' is not a cron expression"),
    ('schedule.decay_sweep = "0 25 * * *"', 4, "schedule.decay_sweep", "five fields are allowed"),
    ('schedule.episode_cleanup = ""', 4, "schedule.episode_cleanup", "is not a cron expression"),
]
HEAD = '[butler]\nname = "b"\n'
CASES: list[Case] = [
    *BUTLER,
    *((HEAD + text, line, key, words) for text, line, key, words in FURTHER),
    *((f"{HEAD}[butler.auth]\n{text}", line, f"butler.auth.{key}", words) for text, line, key, words in AUTH),
    *(
        (f"{HEAD}[butler.runtime]\n{text}", line, f"butler.runtime.{key}", words)
        for text, line, key, words in RUNTIME
    ),
    *((f"{HEAD}[modules.memory]\n{text}", line, f"modules.memory.{key}", words) for text, line, key, words in MEMORY),
]


@pytest.mark.parametrize(
    ("text", "line", "key", "words"), CASES, ids=[f"{key}: {words}" for _, _, key, words in CASES]
)
def test_a_problem_is_reported_with_its_line_its_key_and_the_allowed_values(
    problems_in: ProblemsIn, text: str, line: int | None, key: str, words: str
) -> None:
    prefix = f"butler.toml line {line}: {key}: " if line else f"butler.toml: {key}: "
    assert [problem for problem in problems_in(text) if problem.startswith(prefix) and words in problem]


def test_no_refusal_has_the_words_of_pydantic(problems_in: ProblemsIn) -> None:
    for text, *_ in CASES:
        messages = "\n".join(problems_in(text)).lower()
        assert not [
            word for word in ("pydantic", "input should", "errors.", "validation", "dictionary") if word in messages
        ]


SCHEDULE = """\
[butler]
name = "b"
[[butler.schedule]]
name = "morning"
cron = "0 8 * * *"
prompt = "p"
[[butler.schedule]]
name = "{name}"
cron = "{cron}"
prompt = "{prompt}"
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"name": "morning"},
            "line 8: butler.schedule[1].name: 'morning' is already the name of butler.schedule[0]",
        ),
        ({"name": ""}, "line 8: butler.schedule[1].name: must not be blank"),
        ({"cron": "0 8 * *"}, "line 9: butler.schedule[1].cron: '0 8 * *' is not a cron expression"),
        ({"cron": "0 0 30 2 *"}, "line 9: butler.schedule[1].cron: '0 0 30 2 *' is not a cron expression"),
        ({"prompt": "  "}, "line 10: butler.schedule[1].prompt: must not be blank"),
    ],
)
def test_a_problem_of_a_schedule_entry_names_its_index(
    problems_in: ProblemsIn, change: dict[str, str], message: str
) -> None:
    text = SCHEDULE.format(**{"name": "evening", "cron": "0 20 * * *", "prompt": "p", **change})
    (problem,) = problems_in(text)
    assert problem.startswith(f"butler.toml {message}")


def test_a_schedule_entry_needs_all_three_keys(problems_in: ProblemsIn) -> None:
    assert problems_in('[butler]\nname = "b"\n[[butler.schedule]]\n') == [
        "butler.toml line 3: butler.schedule[0].name: is required",
        "butler.toml line 3: butler.schedule[0].cron: is required",
        "butler.toml line 3: butler.schedule[0].prompt: is required",
    ]


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(problems_in: ProblemsIn) -> None:
    text = """\
[modules.memory]
toolset = "all"
[modules.calendar]
[butler]
name = "B"
port = "x"
[butler.http]
host = "0.0.0.0"
[butler.auth]
tenant = "default"
"""
    assert [problem.split(": ")[:2] for problem in problems_in(text)] == [
        ["butler.toml line 2", "modules.memory.toolset"],
        ["butler.toml line 3", "modules.calendar"],
        ["butler.toml line 5", "butler.name"],
        ["butler.toml line 6", "butler.port"],
        ["butler.toml line 8", "butler.http.host"],
    ]


def test_an_unknown_module_is_refused_with_the_known_ones(problems_in: ProblemsIn) -> None:
    assert problems_in('[butler]\nname = "b"\n[modules.memry]\n') == [
        "butler.toml line 3: modules.memry: is not a known module; did you mean memory? known here: memory"
    ]


@pytest.mark.parametrize(("text", "key"), [("modules = 5", "modules"), ("modules.memory = []", "modules.memory")])
def test_a_module_is_a_table(problems_in: ProblemsIn, text: str, key: str) -> None:
    (problem,) = problems_in(f'{text}\n[butler]\nname = "b"\n')
    assert problem.startswith(f"butler.toml line 1: {key}: expected a table, got ")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("[butler]\nname = \n", "butler.toml line 2, column 8: is not TOML: "),
        ('[butler]\nname = "a"\nname = "b"\n', "butler.toml line 3, column 11: is not TOML: "),
        ("[butler", "butler.toml: is not TOML: "),
        (
            "[butler.runtime]\n[butler]\n[butler.runtime]\n",
            "butler.toml line 3: the table [butler.runtime] is there already",
        ),
        (f"a = {'9' * 5000}", "butler.toml: is not TOML: "),
        (f"a = {'[' * 5000}", "butler.toml: is nested too deeply"),
    ],
)
def test_invalid_toml_is_reported_with_line_and_column(problems_in: ProblemsIn, text: str, start: str) -> None:
    (problem,) = problems_in(text)
    assert problem.startswith(start)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationFault, match="is not UTF-8 text"):
        load(tmp_path, {})


def test_a_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").mkdir()
    with pytest.raises(ConfigurationFault, match="can't be read"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    "text",
    [
        '[butler.database]\nurl = "mysql://me:hunter2@h/d"',
        '[butler.runtime]\ntype = "openai"\napi_key_env = "sk-hunter2"',
        '[butler.auth]\nmode = "jwt"\npublic_key = "-----BEGIN PRIVATE KEY-----hunter2"',
    ],
)
def test_a_refusal_repeats_no_secret(problems_in: ProblemsIn, text: str) -> None:
    assert not [problem for problem in problems_in(f'[butler]\nname = "b"\n{text}\n') if "hunter2" in problem]
