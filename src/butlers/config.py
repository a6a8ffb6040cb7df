"""The models of butler.toml, and the loader that reports every problem with its key and line."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from butlers.config_types import (
    BasePath,
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
from butlers.toml_diagnostics import KeyLines, Problem, display_value, problems_from, unknown_key, validation_error_at

FILE = "butler.toml"
_TABLES = ("butler", "modules")


class Table(BaseModel):
    """A table of butler.toml: frozen, strictly typed, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ModuleConfig(Table):
    """The keys that every module's table has."""

    enabled: bool = Field(False, description="Whether the butler loads the module.")
    optional: bool = Field(
        False,
        description="Whether the butler starts without the module when the module fails to start. "
        "Set it if the butler is useful without the module.",
    )


class DatabaseConfig(Table):
    """[butler.database]: the database that stores the memories."""

    url: DatabaseUrl | None = Field(
        None,
        description="The PostgreSQL database to use, as the application's role. Without it the butler runs an "
        "embedded server. The environment variable `BUTLERS_DATABASE_URL` overrides it.",
    )
    pool_size: int = Field(
        10,
        ge=1,
        le=200,
        description="Maximum number of connections. One tenant can use three quarters of them. "
        "Raise it when calls wait for a connection and the server allows more.",
    )


def _bound_to(key: str, value: str, *names: str, required: tuple[str, ...]) -> Any:
    """Return a validator: the keys `names` are allowed, and those in `required` needed, with `key = "value"`."""

    def validate(given: object, info: ValidationInfo) -> object:
        actual = info.data.get(key)
        if given is None and actual == value and info.field_name in required:
            raise ValueError(f'is required with {key} = "{value}"')
        if given is not None and actual not in {None, value}:
            raise ValueError(f'is allowed with {key} = "{value}" only, and the {key} is "{actual}"')
        return given

    return field_validator(*names)(validate)


Algorithm = Literal["RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"]
"""Asymmetric signatures only: with a shared secret every verifier could issue tokens."""


class AuthConfig(Table):
    """[butler.auth]: authentication of callers, and their tenant."""

    mode: Literal["local", "keys", "jwt"] = Field(
        "local",
        description="`local`: loopback only, one tenant, no key. `keys`: API keys made by `butlers key create`. "
        "`jwt`: bearer tokens of your identity provider. Change it before other machines can connect.",
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
        None, description="jwt: the key that verifies signatures, as PEM text. Use it for issuers without a key set."
    )
    jwks_uri: WebAddress | None = Field(
        None,
        validate_default=True,
        description="jwt: the URL of the issuer's key set. Set either this or `public_key`, not both.",
    )
    algorithm: Algorithm = Field("RS256", description="jwt: the signature algorithm that is accepted.")
    tenant_claim: Text = Field("tenant_id", description="jwt: the claim that names the caller's tenant.")
    roles_claim: Text = Field("roles", description="jwt: the claim that lists the caller's roles.")
    elevated_claim: Text = Field(
        "elevated", description="jwt: the claim that lets an admin act inside another tenant."
    )

    _jwt_keys = _bound_to(
        "mode", "jwt", "issuer", "audience", "public_key", "jwks_uri", "algorithm", "tenant_claim", "roles_claim",
        "elevated_claim", required=("issuer", "audience"),
    )  # fmt: skip

    @field_validator("jwks_uri")
    @classmethod
    def _requires_one_key_source(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("mode") != "jwt" or "public_key" not in info.data:
            return value
        if (value is None) == (info.data["public_key"] is None):
            given = "neither is" if value is None else "both are"
            raise ValueError(f'mode = "jwt" needs exactly one of jwks_uri and public_key, and {given} given')
        return value


class HttpConfig(Table):
    """[butler.http]: the address to listen on, and the hosts and web origins to accept."""

    host: Text = Field(
        "127.0.0.1",
        description="The address to listen on. An address other than loopback needs `mode` `keys` or `jwt`.",
    )
    allowed_hosts: list[Text] = Field(
        [], description="Additional `Host` names to accept. Add the public name if the butler is behind a proxy."
    )
    allowed_origins: list[Text] = Field(
        [], description="Web origins whose pages may call the butler. Add the origin of your own page."
    )


class LimitsConfig(Table):
    """[butler.limits]: limits on connections and calls, and the time to stop."""

    calls_per_second: float = Field(
        200.0,
        gt=0,
        description="Calls per second that each tenant may make on average, in all processes of the butler together. "
        "Every message counts, also `tools/list`, and a larger one counts once for each 16 KiB.",
    )
    burst: int = Field(400, ge=1, description="Calls that each tenant may make at once before the rate applies.")
    max_body_bytes: int = Field(
        4_194_304,
        ge=1024,
        le=4_194_304,
        description="Maximum size of a request; larger ones are refused. The default fits the largest memory.",
    )
    max_connections: int = Field(
        512,
        ge=16,
        le=65_536,
        description="Maximum number of connections, less if the limit of open files (`ulimit -n`) requires it. "
        "Beyond it, each new connection closes the one that waits longest for its client; `/health` still answers. "
        "One tenant can use three quarters of them at once.",
    )
    head_timeout_seconds: float = Field(
        10.0, gt=0, le=3600, description="Maximum time for a client to send the head of a request."
    )
    body_timeout_seconds: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Maximum time for a client to send the body of a request, or to read an answer.",
    )
    keep_alive_seconds: int = Field(
        5, ge=1, le=3600, description="Time after an answer that a connection stays open for the next request."
    )
    call_timeout_seconds: float = Field(
        30.0, gt=0, le=3600, description="Maximum duration of a call; a longer one fails with `timeout`."
    )
    database_patience_seconds: float = Field(
        5.0,
        ge=1,
        le=600,
        description="Time after which a database host that does not answer is given up: its connections are ended, "
        "and calls go on with the next host of the URL. Each host has this time to accept a connection.",
    )
    drain_seconds: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="Time after SIGTERM in which `/health` says `draining` and open connections are served. Then the "
        "butler stops. Raise it above the interval in which a load balancer asks. Ctrl-C skips it.",
    )
    grace_seconds: float = Field(
        20.0, ge=0, le=3600, description="Time that a stopping butler gives to running calls."
    )


class DashboardConfig(Table):
    """[butler.dashboard]: the pages that show the memory in a browser."""

    enabled: bool = Field(True, description="Whether the butler serves the dashboard beside `/mcp`.")
    base_path: BasePath = Field(
        "",
        description="The path under which a proxy serves the butler, for example `/memory`. Links start with it.",
    )


class RuntimeConfig(Table):
    """[butler.runtime]: the model or program that runs a session."""

    type: Literal["claude", "command", "openai"] = Field(
        "claude",
        description="`claude`: the Claude CLI. `command`: any program, prompt on stdin, answer on stdout. "
        "`openai`: any server that speaks chat completions.",
    )
    command: list[Text] = Field(
        [],
        validate_default=True,
        description='claude and command: the program and its arguments. For claude the default is `["claude"]`.',
    )
    base_url: WebAddress | None = Field(
        None, validate_default=True, description="openai: the URL of the server, including `/v1`. Required there."
    )
    model: Text | None = Field(
        None, validate_default=True, description="openai: the name of the model. Required there."
    )
    api_key_env: VariableName | None = Field(
        None,
        description="openai: the environment variable that holds the API key. Leave it out if the server needs none.",
    )
    timeout_seconds: float = Field(600.0, gt=0, le=86_400, description="Maximum duration of a session.")

    @model_validator(mode="before")
    @classmethod
    def _default_claude_command(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type", "claude") == "claude":
            return {"command": ["claude"], **data}
        return data

    @field_validator("command")
    @classmethod
    def _command_matches_type(cls, value: list[str], info: ValidationInfo) -> list[str]:
        kind = info.data.get("type")
        if kind == "openai" and value:
            raise ValueError('is allowed with type = "claude" or "command" only, and the type is "openai"')
        if kind in {"claude", "command"} and not value:
            raise ValueError(f'is required with type = "{kind}": a list of the program and its arguments')
        return value

    _openai_keys = _bound_to("type", "openai", "base_url", "model", "api_key_env", required=("base_url", "model"))


class SessionsConfig(Table):
    """[butler.sessions]: limits on sessions of the runtime."""

    max_concurrent: int = Field(
        2,
        ge=1,
        le=100,
        description="Maximum number of sessions that run at the same time; further ones are queued, and tenants take "
        "turns.",
    )
    max_queued: int = Field(
        20,
        ge=0,
        le=10_000,
        description="Maximum number of queued sessions; one more is refused with `overloaded`. A tenant can use half "
        "of those that the other tenants leave.",
    )
    memory_timeout_seconds: float = Field(
        5.0,
        gt=0,
        le=60,
        description="Maximum time to load memories before a session, which then starts without them, and to store "
        "its episode at the end.",
    )
    trigger_tool: bool = Field(
        False, description="Whether agents can call the tool `trigger`, which runs a prompt in a session."
    )


class ScheduleEntry(Table):
    """[[butler.schedule]]: a scheduled session."""

    name: Text = Field(description="The name in logs and records; it must be unique.")
    cron: Cron = Field(description="The schedule: minute, hour, day of month, month, day of week.")
    prompt: Text = Field(description="The prompt of the session.")


class ButlerConfig(Table):
    """[butler]: the butler itself."""

    name: ButlerName = Field(
        description="The butler's name: 1 to 40 of `a-z`, `0-9`, `_` and `-`, starting with a letter. The "
        "database and the scope of its memories have this name, so do not change it later."
    )
    description: str = Field("", description="The butler's purpose, sent to agents that connect.")
    port: int = Field(
        8101, ge=0, le=65535, description="The port to listen on; 0 means any free port. Each butler needs its own."
    )
    database: DatabaseConfig = DatabaseConfig()
    auth: AuthConfig = AuthConfig()
    http: HttpConfig = HttpConfig()
    limits: LimitsConfig = LimitsConfig()
    dashboard: DashboardConfig = DashboardConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    sessions: SessionsConfig = SessionsConfig()
    schedule: list[ScheduleEntry] = []

    @field_validator("http")
    @classmethod
    def _local_mode_listens_on_loopback(cls, http: HttpConfig, info: ValidationInfo) -> HttpConfig:
        auth = info.data.get("auth")
        if auth is not None and auth.mode == "local" and not is_loopback(http.host):
            raise validation_error_at(
                ("host",),
                f'{display_value(http.host)} is not a loopback address, and mode = "local" listens on loopback only: '
                "127.0.0.1, ::1 and localhost are allowed, or another butler.auth.mode",
            )
        return http

    @field_validator("schedule")
    @classmethod
    def _names_are_unique(cls, entries: list[ScheduleEntry]) -> list[ScheduleEntry]:
        names = [entry.name for entry in entries]
        for index, name in enumerate(names):
            if (first := names.index(name)) != index:
                taken = f"{display_value(name)} is already the name of butler.schedule[{first}]"
                raise validation_error_at((index, "name"), f"{taken}; each name is allowed once")
        return entries


@dataclass(frozen=True, slots=True)
class Configuration:
    """A butler's folder and the contents of its butler.toml."""

    folder: Path
    butler: ButlerConfig
    modules: Mapping[str, ModuleConfig]


def load(folder: Path, module_models: Mapping[str, type[ModuleConfig]]) -> Configuration:
    """Return the validated butler.toml of `folder`; raise one `ConfigurationFault` that lists every problem."""
    text = _read(folder / FILE)
    document = _parse(text)
    problems = [unknown_key(_TABLES, (name,)) for name in document if name not in _TABLES]
    butler = _validate(ButlerConfig, document.get("butler", {}), ("butler",), problems)
    modules = _validate_modules(document.get("modules", {}), module_models, problems)
    if problems or butler is None:
        lines = KeyLines(text)
        in_order = sorted(problems, key=lambda problem: lines.line_of(problem.key) or 0)
        raise ConfigurationFault("\n".join(problem.message(FILE, lines) for problem in in_order))
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


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ConfigurationFault(f"{FILE}: is nested too deeply") from None
    # A plain ValueError comes from a number with more digits than Python parses.
    except ValueError as error:
        if repeated := re.fullmatch(r"Cannot declare \((.*)\) twice \(at (line \d+), .*\)", str(error)):
            table = ".".join(re.findall(r"'([^']*)'", repeated[1]))
            raise ConfigurationFault(
                f"{FILE} {repeated[2]}: the table [{table}] is there already", hint="Merge the two into one."
            ) from None
        where = re.fullmatch(r"(.*) \(at (line \d+, column \d+)\)", str(error), re.DOTALL)
        raise ConfigurationFault(
            f"{FILE} {where[2]}: is not TOML: {where[1]}" if where else f"{FILE}: is not TOML: {error}"
        ) from None


Model = TypeVar("Model", bound=Table)


def _validate(model: type[Model], table: object, key: tuple[str, ...], problems: list[Problem]) -> Model | None:
    """Return the table as its model, or None after adding its problems to `problems`."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems.extend(problems_from(error, model, key))
        return None


def _validate_modules(
    tables: object, models: Mapping[str, type[ModuleConfig]], problems: list[Problem]
) -> dict[str, ModuleConfig]:
    if not isinstance(tables, dict):
        problems.append(Problem(("modules",), f"expected a table, got {display_value(tables)}"))
        return {}
    modules: dict[str, ModuleConfig] = {}
    for name, table in tables.items():
        if name not in models:
            problems.append(unknown_key(models, ("modules", name), "module"))
        elif module := _validate(models[name], table, ("modules", name), problems):
            modules[name] = module
    return modules
