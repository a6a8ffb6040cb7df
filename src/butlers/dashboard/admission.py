"""Admission of requests: each is charged to a rate before its credential is looked up in the database."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from butlers.dashboard import authentication, forms
from butlers.dashboard.page import Page
from butlers.host.api_keys import hash_secret
from butlers.host.limits import RateLimit

_MAX_CREDENTIALS = 10_000


class KnownCredentials:
    """The tenants of credentials that were valid when they were last looked up; of each only the hash is kept."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[bytes, str] = OrderedDict()

    def tenant_of(self, credential: str) -> str | None:
        """Return the tenant of a credential, or None if it is not known."""
        return self._tenants.get(hash_secret(credential)) if credential else None

    def add(self, credential: str, tenant: str) -> None:
        """Remember a valid credential."""
        self._tenants[hash_secret(credential)] = tenant
        if len(self._tenants) > _MAX_CREDENTIALS:
            self._tenants.popitem(last=False)

    def remove(self, credential: str) -> None:
        """Forget a credential that is not valid any more."""
        self._tenants.pop(hash_secret(credential), None)


@dataclass(frozen=True, slots=True)
class Admission:
    """Charges requests and finds their callers."""

    tenants: RateLimit
    """The rate of each tenant, which its tools share."""
    networks: RateLimit
    """The rate of each network, for requests without a caller."""
    known: KnownCredentials = field(default_factory=KnownCredentials)

    def admit_anonymous(self, page: Page) -> None:
        """Charge a request for a page without a login. Raises `Overloaded`."""
        self.networks.take(authentication.client_network(page.request), calls=_calls(page))

    async def admit(self, page: Page) -> Page:
        """Return the page with its caller; unchanged if they have to log in.

        A credential that is not known is charged to the network it comes from, which gets the calls back if it proves
        valid. So a flood of invented cookies asks the database no more often than the rate allows, and those who are
        logged in do not share the rate of strangers. Raises `Overloaded`, and `NotFound` for another tenant's pages.
        """
        credential = authentication.sent_credential(page)
        is_local = page.server.config.auth.mode == "local"
        tenant = page.caller.tenant if is_local else self.known.tenant_of(credential)
        if tenant is None:
            self.admit_anonymous(page)
        else:
            await self._take(tenant, page)
        caller = await authentication.authenticate(page)
        if caller is None:
            self.known.remove(credential)
            return page
        if tenant is None:
            self.networks.give_back(authentication.client_network(page.request), calls=_calls(page))
            await self._take(caller.tenant, page)
            self.known.add(credential, caller.tenant)
        return replace(page, caller=authentication.within_tenant(page, caller))

    async def _take(self, tenant: str, page: Page) -> None:
        await self.tenants.prepare(tenant, calls=_calls(page))
        self.tenants.take(tenant, calls=_calls(page))


def _calls(page: Page) -> int:
    return forms.count_calls(page.request, page.max_form_bytes)
