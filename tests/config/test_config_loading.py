"""Loading a valid butler.toml."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from butlers.config import ButlerConfig, Configuration, DatabaseConfig, ModuleConfig, ScheduleEntry, load
from butlers.errors import ConfigurationFault
from butlers.modules.memory.config import MemoryModuleConfig, ScoreWeights, SectionQuotas

ROOT = Path(__file__).parents[2]
MODELS: dict[str, type[ModuleConfig]] = {"memory": MemoryModuleConfig}
LoadText = Callable[[str], Configuration]


@pytest.fixture
def load_text(tmp_path: Path) -> LoadText:
    """A function that loads a butler.toml with the given text."""

    def load_file(text: str) -> Configuration:
        (tmp_path / "butler.toml").write_text(text, encoding="utf-8")
        return load(tmp_path, MODELS)

    return load_file


EVERY_KEY = """
[butler]
name = "health"
description = "Keeps an eye on health"
port = 8102

[butler.database]               # left out: embedded server, database butler_health
url = "postgresql://butlers@db/health"

[butler.auth]
mode = "local"                  # local: loopback only
tenant = "home"

[butler.runtime]
type = "claude"
command = ["claude", "--verbose"]
timeout_seconds = 900

[[butler.schedule]]
name = "morning"
cron = "0 8 * * *"
prompt = "Good morning"

[modules.memory]
enabled = true
episode_ttl_days = 8
max_episodes = 20000
toolset = "full"
secrets = "refuse"
receipt_days = 30

[modules.memory.retrieval]
context_token_budget = 4000
default_limit = 21
default_mode = "keyword"
recall_mode = "blended"
least_match = "fair"
min_confidence = 0.3
score_weights = { relevance = 0.5, importance = 0.2, recency = 0.2, confidence = 0.1 }
section_quotas = { facts = 0.5, rules = 0.25, episodes = 0.25 }

[modules.memory.confidence]
fading_below = 0.3
expired_below = 0.1

max_expired_share = 0.5

[modules.memory.embedding]
folder = "/models/small"
pooling = "cls"

[modules.memory.consolidation]
batch_size = 40
max_attempts = 4
max_prompt_tokens = 9000
daily_token_limit = 5000
lease_seconds = 30.0
distilled_confidence = 0.5
drop_echoes = false
confirm_twins = false
ask_about_updates = false
list_predicates = false
review = "before"
proposal_days = 7

[modules.memory.hints]
enabled = false
min_similarity = 0.8

[modules.memory.schedule]
consolidate = "0 */3 * * *"
decay_sweep = "0 2 * * *"
episode_cleanup = "0 5 * * *"
"""

PUBLISHED_EXAMPLE = """
[butler]
name = "health"
description = "Keeps an eye on health"
port = 8101

[butler.database]               # left out: embedded server, database butler_health
url = "postgresql://…"

[butler.auth]
mode = "local"                  # local: loopback only, one tenant, no key · keys: API keys · jwt: bearer tokens
tenant = "default"              # the tenant of local and stdio callers

[butler.runtime]
type = "claude"                 # claude · command · openai
command = ["claude"]
timeout_seconds = 600

[[butler.schedule]]
name = "morning"
cron = "0 8 * * *"
prompt = "…"

[modules.memory]
enabled = true
episode_ttl_days = 7
max_episodes = 10000
toolset = "core"                # core: the 19 · full: those and the further ones

[modules.memory.retrieval]
context_token_budget = 3000
default_limit = 20
default_mode = "hybrid"
min_confidence = 0.2
score_weights = { relevance = 0.4, importance = 0.3, recency = 0.2, confidence = 0.1 }
section_quotas = { facts = 0.6, rules = 0.25, episodes = 0.15 }

[modules.memory.confidence]
fading_below = 0.2
expired_below = 0.05

[modules.memory.consolidation]
batch_size = 50
max_attempts = 5

[modules.memory.schedule]
consolidate = "0 */6 * * *"
decay_sweep = "0 3 * * *"
episode_cleanup = "0 4 * * *"
"""


def memory_of(configuration: Configuration) -> MemoryModuleConfig:
    memory = configuration.modules["memory"]
    assert isinstance(memory, MemoryModuleConfig)
    return memory


def test_the_published_example_spells_out_the_defaults(load_text: LoadText) -> None:
    configuration = load_text(PUBLISHED_EXAMPLE)
    assert memory_of(configuration) == MemoryModuleConfig(enabled=True)
    assert configuration.butler == ButlerConfig(
        name="health",
        description="Keeps an eye on health",
        database=DatabaseConfig(url="postgresql://…"),
        schedule=[ScheduleEntry(name="morning", cron="0 8 * * *", prompt="…")],
    )


def test_every_key_is_loaded(load_text: LoadText, tmp_path: Path) -> None:
    configuration = load_text(EVERY_KEY)
    butler, memory = configuration.butler, memory_of(configuration)
    assert configuration.folder == tmp_path
    assert (butler.name, butler.description, butler.port) == ("health", "Keeps an eye on health", 8102)
    assert butler.database.url == "postgresql://butlers@db/health"
    assert (butler.auth.mode, butler.auth.tenant) == ("local", "home")
    assert (butler.runtime.type, butler.runtime.timeout_seconds) == ("claude", 900)
    assert butler.runtime.command == ["claude", "--verbose"]
    assert [entry.model_dump() for entry in butler.schedule] == [
        {"name": "morning", "cron": "0 8 * * *", "prompt": "Good morning"}
    ]
    assert memory.model_dump() == {
        "enabled": True,
        "optional": False,
        "episode_ttl_days": 8,
        "max_episodes": 20000,
        "toolset": "full",
        "secrets": "refuse",
        "receipt_days": 30,
        "retrieval": {
            "context_token_budget": 4000,
            "default_limit": 21,
            "default_mode": "keyword",
            "recall_mode": "blended",
            "least_match": "fair",
            "min_confidence": 0.3,
            "score_weights": {"relevance": 0.5, "importance": 0.2, "recency": 0.2, "confidence": 0.1},
            "section_quotas": {"facts": 0.5, "rules": 0.25, "episodes": 0.25},
            "maturity_importance": {"candidate": 4.0, "established": 6.0, "proven": 8.0, "anti_pattern": 6.0},
        },
        "confidence": {"fading_below": 0.3, "expired_below": 0.1, "max_expired_share": 0.5},
        "embedding": {"folder": "/models/small", "pooling": "cls"},
        "consolidation": {
            "batch_size": 40,
            "max_attempts": 4,
            "max_prompt_tokens": 9000,
            "daily_token_limit": 5000,
            "lease_seconds": 30.0,
            "distilled_confidence": 0.5,
            "drop_echoes": False,
            "confirm_twins": False,
            "ask_about_updates": False,
            "list_predicates": False,
            "review": "before",
            "proposal_days": 7,
        },
        "hints": {"enabled": False, "min_similarity": 0.8},
        "schedule": {
            "reembed": "*/10 * * * *",
            "consolidation_retry": "*/5 * * * *",
            "consolidate": "0 */3 * * *",
            "decay_sweep": "0 2 * * *",
            "episode_cleanup": "0 5 * * *",
            "index_upkeep": "30 * * * *",
        },
    }


def test_only_the_name_is_required_and_the_defaults_are_as_documented(load_text: LoadText) -> None:
    butler = load_text('[butler]\nname = "b"\n').butler
    assert butler.model_dump() == {
        "name": "b",
        "description": "",
        "port": 8101,
        "database": {"url": None, "pool_size": 10},
        "auth": {
            "mode": "local",
            "tenant": "default",
            "issuer": None,
            "audience": None,
            "public_key": None,
            "jwks_uri": None,
            "algorithm": "RS256",
            "tenant_claim": "tenant_id",
            "roles_claim": "roles",
            "elevated_claim": "elevated",
        },
        "http": {"host": "127.0.0.1", "allowed_hosts": [], "allowed_origins": []},
        "dashboard": {"enabled": True, "base_path": ""},
        "limits": {
            "calls_per_second": 200.0,
            "burst": 400,
            "max_body_bytes": 4194304,
            "max_connections": 512,
            "head_timeout_seconds": 10.0,
            "body_timeout_seconds": 30.0,
            "keep_alive_seconds": 5,
            "call_timeout_seconds": 30.0,
            "database_patience_seconds": 5.0,
            "drain_seconds": 5.0,
            "grace_seconds": 20.0,
        },
        "sessions": {"max_concurrent": 2, "max_queued": 20, "memory_timeout_seconds": 5.0, "trigger_tool": False},
        "runtime": {
            "type": "claude",
            "command": ["claude"],
            "base_url": None,
            "model": None,
            "api_key_env": None,
            "timeout_seconds": 600.0,
        },
        "schedule": [],
    }


def test_the_defaults_of_the_memory_module_are_as_documented() -> None:
    assert MemoryModuleConfig().model_dump() == {
        "enabled": False,
        "optional": False,
        "episode_ttl_days": 7,
        "max_episodes": 10000,
        "toolset": "core",
        "secrets": "redact",
        "receipt_days": 90,
        "retrieval": {
            "context_token_budget": 3000,
            "default_limit": 20,
            "default_mode": "hybrid",
            "recall_mode": "hybrid",
            "least_match": "weak",
            "min_confidence": 0.2,
            "score_weights": {"relevance": 0.4, "importance": 0.3, "recency": 0.2, "confidence": 0.1},
            "section_quotas": {"facts": 0.6, "rules": 0.25, "episodes": 0.15},
            "maturity_importance": {"candidate": 4.0, "established": 6.0, "proven": 8.0, "anti_pattern": 6.0},
        },
        "confidence": {"fading_below": 0.2, "expired_below": 0.05, "max_expired_share": 0.1},
        "embedding": {"folder": None, "pooling": "mean"},
        "consolidation": {
            "batch_size": 50,
            "max_attempts": 5,
            "max_prompt_tokens": 24_000,
            "daily_token_limit": 1_000_000,
            "lease_seconds": 120.0,
            "distilled_confidence": 0.7,
            "drop_echoes": True,
            "confirm_twins": True,
            "ask_about_updates": True,
            "list_predicates": True,
            "review": "after",
            "proposal_days": 14,
        },
        "hints": {"enabled": True, "min_similarity": 0.72},
        "schedule": {
            "reembed": "*/10 * * * *",
            "consolidation_retry": "*/5 * * * *",
            "consolidate": "0 */6 * * *",
            "decay_sweep": "0 3 * * *",
            "episode_cleanup": "0 4 * * *",
            "index_upkeep": "30 * * * *",
        },
    }


def test_a_module_that_the_file_does_not_name_is_not_loaded(load_text: LoadText) -> None:
    assert load_text('[butler]\nname = "b"\n').modules == {}


def test_a_disabled_module_is_loaded_into_the_configuration(load_text: LoadText) -> None:
    assert memory_of(load_text('[butler]\nname = "b"\n[modules.memory]\n')).enabled is False


def test_a_partly_given_inline_table_keeps_the_other_defaults(load_text: LoadText) -> None:
    text = '[butler]\nname = "b"\n[modules.memory.retrieval]\nscore_weights = { relevance = 1 }\n'
    retrieval = memory_of(load_text(text)).retrieval
    assert retrieval.score_weights == ScoreWeights(relevance=1.0, importance=0.3, recency=0.2, confidence=0.1)
    assert retrieval.section_quotas == SectionQuotas()


def test_shares_that_add_up_to_one_after_rounding_are_accepted() -> None:
    assert SectionQuotas(facts=0.7, rules=0.2, episodes=0.1).facts == 0.7
    assert SectionQuotas(facts=0.1, rules=0.6, episodes=0.3).rules == 0.6


def test_an_integer_is_accepted_for_a_number(load_text: LoadText) -> None:
    butler = load_text('[butler]\nname = "b"\nport = 0\n[butler.limits]\ngrace_seconds = 5\n').butler
    assert (butler.port, butler.limits.grace_seconds) == (0, 5.0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_mode_local_accepts_any_loopback_address(load_text: LoadText, host: str) -> None:
    assert load_text(f'[butler]\nname = "b"\n[butler.http]\nhost = "{host}"\n').butler.http.host == host


def test_mode_keys_accepts_any_address(load_text: LoadText) -> None:
    text = '[butler]\nname = "b"\n[butler.http]\nhost = "0.0.0.0"\n[butler.auth]\nmode = "keys"\n'
    assert load_text(text).butler.http.host == "0.0.0.0"  # noqa: S104


PEM = "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n"


@pytest.mark.parametrize("key", ['jwks_uri = "https://id.example/keys"', f'public_key = """\n{PEM}"""'])
def test_tokens_are_checked_with_a_key_set_or_with_a_key(load_text: LoadText, key: str) -> None:
    text = f'[butler]\nname = "b"\n[butler.auth]\nmode = "jwt"\nissuer = "i"\naudience = "a"\n{key}\n'
    assert load_text(text).butler.auth.issuer == "i"


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ('type = "command"\ncommand = ["./think", "-q"]', ["./think", "-q"]),
        ('type = "openai"\nbase_url = "http://localhost:11434/v1"\nmodel = "m"\napi_key_env = "KEY"', []),
        ("timeout_seconds = 5.5", ["claude"]),
    ],
)
def test_each_runtime_has_its_own_keys(load_text: LoadText, lines: str, command: list[str]) -> None:
    assert load_text(f'[butler]\nname = "b"\n[butler.runtime]\n{lines}\n').butler.runtime.command == command


def test_a_file_from_windows_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "butler.toml").write_bytes('\ufeff[butler]\r\nname = "b"\r\n'.encode())
    assert load(tmp_path, MODELS).butler.name == "b"


@pytest.mark.parametrize("folder", sorted(ROOT.glob("examples/*/butler.toml")), ids=lambda path: path.parent.name)
def test_every_example_loads(folder: Path) -> None:
    assert load(folder.parent, MODELS).butler.name


def test_the_example_a_newcomer_runs_has_memory_on() -> None:
    configuration = load(ROOT / "examples" / "general", MODELS)
    assert (configuration.butler.name, configuration.butler.port) == ("general", 8101)
    assert memory_of(configuration).enabled


def test_models_are_frozen() -> None:
    butler, memory = ButlerConfig(name="b"), MemoryModuleConfig()
    for model, key in (
        (butler, "port"),
        (butler.auth, "mode"),
        (memory, "enabled"),
        (memory.retrieval, "default_limit"),
    ):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, key, 1)


def test_a_folder_without_the_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFault) as caught:
        load(tmp_path, MODELS)
    assert "no butler.toml" in caught.value.message
    assert caught.value.hint.startswith("`butlers init DIR` writes one")
