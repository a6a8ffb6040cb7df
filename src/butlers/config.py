"""butler.toml as frozen models; whatever is wrong with it is said with its key and line."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from butlers.config_types import (
    ButlerName,
    Cron,
    DatabaseUrl,
    PublicKey,
    TenantName,
    Text,
    VariableName,
    WebAddress,
    is_loopback,
)
from butlers.errors import ConfigurationFault
from butlers.toml_diagnostics import (
    Key,
    KeyLines,
    Problem,
    display_value,
    problems_from,
    unknown_key,
    validation_error_at,
)

FILE = "butler.toml"
_TABLES = ("butler", "modules")


class Table(BaseModel):
    """A table of butler.toml: frozen, without unknown keys, and with the types as they are written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModuleConfig(Table):
    """What every module's table holds, whatever else it adds."""

    enabled: bool = Field(False, description="Whether the butler loads the module.")
    optional: bool = Field(
        False,
        description="A module that fails to start stops the butler unless it is optional. "
        "Set it where the butler is of use without the module.",
    )


class DatabaseConfig(Table):
    """[butler.database]: where the memories are kept."""

    url: DatabaseUrl | None = Field(
        None,
        description="The PostgreSQL to use, as the application's role. Left out, the butler runs an embedded "
        "server of its own. `BUTLERS_DATABASE_URL` says the same without writing it down.",
    )
    pool_size: int = Field(
        10,
        ge=1,
        le=200,
        description="How many connections the butler holds at most, a quarter of them out of any one tenant's reach. "
        "Raise it when calls wait for one and the server has some to spare.",
    )


Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"]
"""Signatures whose checking key can't sign; a shared secret would let every checker mint tokens."""


class AuthConfig(Table):
    """[butler.auth]: who may call, and for which tenant."""

    mode: Literal["local", "keys", "jwt"] = Field(
        "local",
        description="`local`: loopback only, one tenant, no key. `keys`: API keys that `butlers key create` "
        "makes. `jwt`: bearer tokens of your identity provider. Change it before others can reach it.",
    )
    tenant: TenantName = Field(
        "default", description="The tenant of local and stdio callers, and of the command line."
    )
    issuer: Text | None = Field(
        None, validate_default=True, description="jwt: the `iss` a token must carry. Required there."
    )
    audience: Text | None = Field(
        None, validate_default=True, description="jwt: the `aud` a token must carry. Required there."
    )
    public_key: PublicKey | None = Field(
        None,
        description="jwt: the key that checks signatures, as PEM text. For issuers that publish no key set.",
    )
    jwks_uri: WebAddress | None = Field(
        None,
        validate_default=True,
        description="jwt: where the issuer publishes its keys. Either this or `public_key`, not both.",
    )
    algorithm: Algorithm = Field("RS256", description="jwt: the one signature algorithm that is accepted.")
    tenant_claim: Text = Field("tenant_id", description="jwt: the claim that names the caller's tenant.")
    roles_claim: Text = Field("roles", description="jwt: the claim that lists the caller's roles.")
    elevated_claim: Text = Field(
        "elevated", description="jwt: the claim that lets an admin act inside another tenant."
    )

    @field_validator(
        "issuer",
        "audience",
        "public_key",
        "jwks_uri",
        "algorithm",
        "tenant_claim",
        "roles_claim",
        "elevated_claim",
    )
    @classmethod
    def _only_with_jwt(cls, value: str | None, info: ValidationInfo) -> str | None:
        mode = info.data.get("mode", "jwt")
        if value is not None and mode != "jwt":
            raise ValueError(f'is allowed with mode = "jwt" only, and the mode is "{mode}"')
        return value

    @field_validator("issuer", "audience")
    @classmethod
    def _needed_with_jwt(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("mode") == "jwt":
            raise ValueError('is required with mode = "jwt"')
        return value

    @field_validator("jwks_uri")
    @classmethod
    def _one_source_of_keys(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("mode") != "jwt" or "public_key" not in info.data:
            return value
        if (value is None) == (info.data["public_key"] is None):
            given = "neither is" if value is None else "both are"
            raise ValueError(f'mode = "jwt" needs exactly one of jwks_uri and public_key, and {given} given')
        return value


class HttpConfig(Table):
    """[butler.http]: where the butler listens, and whom a browser may bring along."""

    host: Text = Field(
        "127.0.0.1",
        description="The address to listen on. Anything but loopback needs `mode` `keys` or `jwt`.",
    )
    allowed_hosts: list[Text] = Field(
        [],
        description="Further `Host` names to answer to. Add the public name when a proxy stands in front.",
    )
    allowed_origins: list[Text] = Field(
        [], description="Web origins whose pages may call the butler. Add one for a page of your own."
    )


class LimitsConfig(Table):
    """[butler.limits]: how much the butler takes on at once."""

    calls_per_second: float = Field(
        200.0, gt=0, description="Calls a tenant may make per second, over time. Lower it to share fairly."
    )
    burst: int = Field(400, ge=1, description="Calls a tenant may make at once before the rate applies.")
    max_body_bytes: int = Field(
        4_194_304,
        ge=1024,
        le=67_108_864,
        description="The largest request that is read; larger ones are refused.",
    )
    call_timeout_seconds: float = Field(
        30.0, gt=0, le=3600, description="How long one call may take before it is given up with `timeout`."
    )
    grace_seconds: float = Field(
        20.0, ge=0, le=3600, description="How long a butler that was told to stop waits for calls under way."
    )


class RuntimeConfig(Table):
    """[butler.runtime]: what thinks for the butler in a session."""

    type: Literal["claude", "command", "openai"] = Field(
        "claude",
        description="`claude`: the Claude CLI. `command`: any program, prompt on stdin, answer on stdout. "
        "`openai`: any server that speaks chat completions.",
    )
    command: list[Text] = Field(
        [],
        validate_default=True,
        description='claude and command: the program and its arguments. claude has `["claude"]` by itself.',
    )
    base_url: WebAddress | None = Field(
        None, validate_default=True, description="openai: the server, up to and with `/v1`. Required there."
    )
    model: Text | None = Field(
        None, validate_default=True, description="openai: the model to ask for. Required there."
    )
    api_key_env: VariableName | None = Field(
        None,
        description="openai: the environment variable that holds the key. Leave it out for a server without.",
    )
    timeout_seconds: float = Field(
        600.0, gt=0, le=86_400, description="How long a session may take. Raise it for long work."
    )

    @model_validator(mode="before")
    @classmethod
    def _claude_by_itself(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type", "claude") == "claude":
            return {"command": ["claude"], **data}
        return data

    @field_validator("command")
    @classmethod
    def _command_fits_type(cls, value: list[str], info: ValidationInfo) -> list[str]:
        kind = info.data.get("type")
        if kind == "openai" and value:
            raise ValueError('is allowed with type = "claude" or "command" only, and the type is "openai"')
        if kind in {"claude", "command"} and not value:
            raise ValueError(f'is required with type = "{kind}": a list of the program and its arguments')
        return value

    @field_validator("base_url", "model", "api_key_env")
    @classmethod
    def _only_with_openai(cls, value: str | None, info: ValidationInfo) -> str | None:
        kind = info.data.get("type", "openai")
        if value is not None and kind != "openai":
            raise ValueError(f'is allowed with type = "openai" only, and the type is "{kind}"')
        return value

    @field_validator("base_url", "model")
    @classmethod
    def _needed_with_openai(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("type") == "openai":
            raise ValueError('is required with type = "openai"')
        return value


class SessionsConfig(Table):
    """[butler.sessions]: how sessions of the runtime are run."""

    most_at_once: int = Field(
        2, ge=1, le=100, description="Sessions that run at the same time; the others wait for their turn."
    )
    most_waiting: int = Field(
        20, ge=0, le=10_000, description="Sessions that may wait; one more is refused with `overloaded`."
    )
    memory_seconds: float = Field(
        5.0,
        gt=0,
        le=60,
        description="How long a session waits for its memories before it starts without them, and how long keeping "
        "its episode may take at its end.",
    )
    tool: bool = Field(
        False, description="Whether agents see the tool `trigger`, which has the butler carry out a prompt."
    )


class ScheduleEntry(Table):
    """[[butler.schedule]]: a session that starts by the clock."""

    name: Text = Field(description="What the entry is called in logs and records; each name once.")
    cron: Cron = Field(description="When it runs: minute, hour, day of month, month, day of week.")
    prompt: Text = Field(description="What the session is asked to do.")


class ButlerConfig(Table):
    """[butler]: one butler."""

    name: ButlerName = Field(
        description="The butler's name: 1 to 40 of `a-z`, `0-9`, `_` and `-`, a letter first. It names the "
        "database and the scope of its memories, so choose it once."
    )
    description: str = Field("", description="What the butler is for; agents that connect are told.")
    port: int = Field(
        8101,
        ge=0,
        le=65535,
        description="The port to listen on; 0 takes any free one. Change it for a second butler.",
    )
    database: DatabaseConfig = DatabaseConfig()
    auth: AuthConfig = AuthConfig()
    http: HttpConfig = HttpConfig()
    limits: LimitsConfig = LimitsConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    sessions: SessionsConfig = SessionsConfig()
    schedule: list[ScheduleEntry] = []

    @field_validator("http")
    @classmethod
    def _local_stays_on_loopback(cls, http: HttpConfig, info: ValidationInfo) -> HttpConfig:
        auth = info.data.get("auth")
        if auth is not None and auth.mode == "local" and not is_loopback(http.host):
            raise validation_error_at(
                ("host",),
                f'{display_value(http.host)} is not loopback, and mode = "local" listens nowhere else: '
                "127.0.0.1, ::1 and localhost are allowed, or another butler.auth.mode",
            )
        return http

    @field_validator("schedule")
    @classmethod
    def _each_name_once(cls, entries: list[ScheduleEntry]) -> list[ScheduleEntry]:
        first: dict[str, int] = {}
        for index, entry in enumerate(entries):
            if first.setdefault(entry.name, index) != index:
                raise validation_error_at(
                    (index, "name"),
                    f"{display_value(entry.name)} is already the name of butler.schedule[{first[entry.name]}]; "
                    "each name is allowed once",
                )
        return entries


@dataclass(frozen=True, slots=True)
class Configuration:
    """A butler's folder and everything its butler.toml says."""

    folder: Path
    butler: ButlerConfig
    modules: Mapping[str, ModuleConfig]


def load(folder: Path, module_models: Mapping[str, type[ModuleConfig]]) -> Configuration:
    """The folder's butler.toml, checked; everything that is wrong with it comes in one fault."""
    text = _read(folder / FILE)
    document = _parsed(text)
    problems = [unknown_key(_TABLES, (name,)) for name in document if name not in _TABLES]
    butler = _checked(ButlerConfig, document.get("butler", {}), ("butler",), problems)
    modules = _modules(document.get("modules", {}), module_models, problems)
    if problems or butler is None:
        lines = KeyLines(text)
        said = sorted(problems, key=lambda problem: lines.line_of(problem.key) or 0)
        raise ConfigurationFault("\n".join(problem.message(FILE, lines) for problem in said))
    return Configuration(folder, butler, modules)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigurationFault(
            f"there is no {FILE} in {path.parent}", hint="`butlers init DIR` writes one."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationFault(f"{FILE}: is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise ConfigurationFault(f"{path} can't be read: {error}") from None


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigurationFault(f"{FILE}: is nested too deeply to be read") from None
    # A plain ValueError is a number with more digits than Python reads.
    except ValueError as error:
        where = re.fullmatch(r"(.*) \(at (line \d+, column \d+)\)", str(error), re.DOTALL)
        raise ConfigurationFault(
            f"{FILE} {where[2]}: is not TOML: {where[1]}" if where else f"{FILE}: is not TOML: {error}"
        ) from None


Model = TypeVar("Model", bound=Table)


def _checked(model: type[Model], table: object, key: Key, problems: list[Problem]) -> Model | None:
    """The table as its model, or nothing and its problems added to the list."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems.extend(problems_from(error, model, key))
        return None


def _modules(
    tables: object, models: Mapping[str, type[ModuleConfig]], problems: list[Problem]
) -> dict[str, ModuleConfig]:
    if not isinstance(tables, dict):
        problems.append(Problem(("modules",), f"expected a table, got {display_value(tables)}"))
        return {}
    modules: dict[str, ModuleConfig] = {}
    for name, table in tables.items():
        if name not in models:
            problems.append(unknown_key(models, ("modules", name), "module"))
        elif module := _checked(models[name], table, ("modules", name), problems):
            modules[name] = module
    return modules
