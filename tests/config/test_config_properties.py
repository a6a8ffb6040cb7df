"""Property tests: any file gives a configuration or a `ConfigurationFault`, never another error."""

import contextlib
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.config import Configuration, ModuleConfig, load
from butlers.errors import ConfigurationFault
from butlers.modules.memory.config import MemoryModuleConfig

MODELS: dict[str, type[ModuleConfig]] = {"memory": MemoryModuleConfig}
# fmt: off
KEY_NAMES = (
    "butler", "name", "port", "auth", "mode", "issuer", "jwks_uri", "http", "host", "limits", "burst",
    "runtime", "type", "command", "schedule", "cron", "prompt", "modules", "memory", "enabled", "toolset",
    "retrieval", "score_weights", "relevance", "section_quotas", "facts", "confidence", "fading_below",
    "expired_below", "x", "'a b'", '"\\n"',
)
ODD_VALUES = (
    '"jwt"', '"openai"', '"b"', '""', '"0 8 * * *"', '"L"', "nan", "-inf", "true", "0", "1", "-1", "1e400",
    "0.5", "12:30:00", "1979-05-27", "1979-05-27T07:32:00Z",
)
# fmt: on
KEYS = st.sampled_from(KEY_NAMES)
DOTTED = st.lists(KEYS, min_size=1, max_size=4).map(".".join)
SCALARS = st.one_of(
    st.sampled_from(ODD_VALUES),
    st.integers().map(str),
    st.integers(min_value=2).map(lambda digits: "0x" + "f" * min(digits, 6000)),
    st.text(max_size=12).map(lambda text: f"'''{text}'''"),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)
LINES = st.one_of(
    DOTTED.map("[{}]".format),
    DOTTED.map("[[{}]]".format),
    st.tuples(DOTTED, VALUES).map(" = ".join),
    st.text(max_size=20),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.lists(LINES, max_size=12).map("\n".join), st.text(max_size=200)))
def test_nothing_but_a_configuration_fault_is_ever_raised(tmp_path: Path, text: str) -> None:
    (tmp_path / "butler.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(ConfigurationFault):
        assert isinstance(load(tmp_path, MODELS), Configuration)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_bytes_that_are_not_text_raise_nothing_else_either(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "butler.toml").write_bytes(content)
    with contextlib.suppress(ConfigurationFault):
        load(tmp_path, MODELS)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_every_problem_is_on_one_line_that_names_the_file(tmp_path: Path, table: dict[str, str]) -> None:
    text = "\n".join(["[butler]", *(f"{key} = {value}" for key, value in table.items())])
    (tmp_path / "butler.toml").write_text(text, encoding="utf-8")
    try:
        load(tmp_path, MODELS)
    except ConfigurationFault as fault:
        for line in fault.message.split("\n"):
            assert line.startswith("butler.toml")
