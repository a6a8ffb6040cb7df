"""The caller: the identity that every operation, transaction and event carries."""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from uuid import uuid4

from butlers.errors import Forbidden, InvalidInput

ADMIN = "admin"
READER = "reader"
SESSION_HEADER, AGENT_HEADER = "X-Session-Id", "X-Agent-Name"
"""HTTP headers in which a client names its session, a UUID, and its agent."""
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller; it always has a tenant."""

    tenant: str
    butler: str
    actor: str = "local"
    roles: frozenset[str] = frozenset()
    elevated: bool = False
    request_id: str = field(default_factory=lambda: str(uuid4()))
    session_id: str | None = None
    home_tenant: str | None = None
    via: str | None = None
    """Where the call came in, if not through a tool: `dashboard`."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Facts the host knows about the call, stored in the metadata of an episode."""

    def __post_init__(self) -> None:
        validate_tenant(self.tenant)
        if not self.butler:
            raise InvalidInput("a caller belongs to a butler")

    @property
    def is_admin(self) -> bool:
        """Whether the caller holds the admin role."""
        return ADMIN in self.roles

    @property
    def is_reader(self) -> bool:
        """Whether the caller may only read."""
        return READER in self.roles

    def within(self, tenant: str) -> "Caller":
        """Return this caller in `tenant`; raise `Forbidden` if it is another one and they are no elevated admin."""
        if tenant == self.tenant:
            return self
        if not (self.is_admin and self.elevated):
            raise Forbidden(
                "your credentials are for another tenant than the one you named",
                hint="Leave tenant_id out. Another tenant needs the admin role and an elevated credential.",
            )
        return replace(self, tenant=tenant, home_tenant=self.tenant)


def validate_tenant(name: object) -> str:
    """Return `name` if it is a valid tenant name; raise `InvalidInput` otherwise."""
    if not isinstance(name, str) or not _TENANT.fullmatch(name):
        raise InvalidInput(
            "a tenant name is 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit",
            hint="Leave tenant_id out to use your own tenant.",
        )
    return name


# No default: code that runs without a caller must fail.
current_caller: ContextVar[Caller] = ContextVar("current_caller")
