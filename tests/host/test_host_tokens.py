"""JWTs of an identity provider, over real HTTP (row 35)."""

import base64
import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastmcp import Client

ISSUER, AUDIENCE = "https://issuer.example", "butlers"


def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


KEY, OTHER_KEY = private_key(), private_key()
PUBLIC = (
    KEY.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)
AUTH = f'[butler.auth]\nmode = "jwt"\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\n'
BY_KEY = f'{AUTH}public_key = """{PUBLIC}"""\n'
REMOVED = object()


def claims(**changes):
    now = int(time.time())
    good = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "tenant_id": "acme",
        "iat": now,
        "nbf": now,
        "exp": now + 300,
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not REMOVED}


def token(key=KEY, algorithm="RS256", **changes):
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": "one"})


def unsigned_token(algorithm, signature):
    """Return a token that no library would sign."""
    parts = ({"alg": algorithm, "typ": "JWT"}, claims())
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    made = ".".join(text)
    return f"{made}.{signature(made)}"


def signed_with_the_public_key(text):
    import hashlib
    import hmac

    digest = hmac.new(PUBLIC.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_good_token_works_with_what_it_claims(folder, listening, era):
    good = token(roles=["admin", 7], elevated=True)
    async with listening(folder(BY_KEY)) as site, Client(site.mcp, auth=good, mode=era) as client:
        who = (await client.call_tool("probe_whoami", {})).structured_content
        there = (await client.call_tool("probe_whoami", {"tenant_id": "globex"})).structured_content
    assert (who["tenant"], who["actor"], who["roles"], who["elevated"]) == ("acme", "ada", ["admin"], True)
    assert (there["tenant"], there["home_tenant"]) == ("globex", "acme")


async def test_the_claims_may_have_other_names(folder, listening):
    names = 'tenant_claim = "org"\nroles_claim = "groups"\nelevated_claim = "sudo"\n'
    good = token(tenant_id=REMOVED, org="acme", groups=["admin"], sudo=True)
    async with listening(folder(BY_KEY + names)) as site:
        who = (await site.call(good)).json()["result"]["structuredContent"]
        assert (await site.call(token())).status_code == 401
    assert (who["tenant"], who["roles"], who["elevated"]) == ("acme", ["admin"], True)


@pytest.mark.parametrize("elevated", ["true", 1, [True], None])
async def test_only_true_elevates(folder, listening, elevated):
    async with listening(folder(BY_KEY)) as site:
        answer = await site.call(token(roles=["admin"], elevated=elevated), tenant_id="globex")
    assert answer.json()["result"]["content"][0]["text"].startswith("forbidden: ")


async def test_elevation_without_the_admin_role_opens_no_other_tenant(folder, listening):
    async with listening(folder(BY_KEY)) as site:
        answer = await site.call(token(roles="admin", elevated=True), tenant_id="globex")
    assert answer.json()["result"]["content"][0]["text"].startswith("forbidden: ")


def bad_tokens():
    now = int(time.time())
    return {
        "expired": token(exp=now - 10),
        "without an end": token(exp=REMOVED),
        "with a broken signature": unsigned_token("RS256", lambda _: "AAAA"),
        "not yet valid": token(nbf=now + 600),
        "issued in the future": token(iat=now + 600),
        "for another audience": token(aud="others"),
        "for no audience": token(aud=REMOVED),
        "of another issuer": token(iss="https://evil.example"),
        "of no issuer": token(iss=REMOVED),
        "signed by another key": token(OTHER_KEY),
        "of another algorithm": token(algorithm="RS512"),
        "HS256 with the public key as secret": unsigned_token("HS256", signed_with_the_public_key),
        "without a signature": unsigned_token("none", lambda _: ""),
        "without a tenant": token(tenant_id=REMOVED),
        "with a bad tenant": token(tenant_id="a b"),
        "with a tenant that is no text": token(tenant_id=7),
        "with an empty tenant": token(tenant_id=""),
        "without a subject": token(sub=REMOVED),
        "with an empty subject": token(sub=""),
        "no token": "garbage",
        "three dots": "...",
    }


async def test_row_35_every_token_that_is_not_wholly_right_is_refused(folder, listening):
    async with listening(folder(BY_KEY)) as site:
        seen = {why: (await site.call(bad)).status_code for why, bad in bad_tokens().items()}
        seen["none at all"] = (await site.call()).status_code
        good = (await site.call(token())).status_code
    assert seen == dict.fromkeys(seen, 401)
    assert good == 200


def nested_token():
    """Return an unsigned token with a header that is nested 1,000 levels deep."""
    header = '{"alg": "RS256", "x": ' + "[" * 1000 + "]" * 1000 + "}"
    parts = (header, json.dumps(claims()))
    return ".".join([*(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts), "AAAA"])


async def test_row_38_a_token_that_no_parser_expects_is_refused(folder, listening):
    bad = {
        "nested": nested_token(),
        "nested deeper": nested_token().replace("AAAA", "AAAA" * 20),
        "without an end in numbers": token(exp=float("inf")),
        "an end that is no number": token(exp=float("nan")),
        "issued at infinity": token(iat=float("inf")),
        **{f"{name} of 400 digits": token(**{name: 10**400}) for name in ("exp", "nbf", "iat")},
        "an end in milliseconds": token(exp=(int(time.time()) + 300) * 1000),
        "an end after the year 9999": token(exp=253_402_300_800),
        "NUL in the subject": token(sub="a\x00b"),
        "half a surrogate in the subject": token(sub="a\ud800"),
        "a line break in the subject": token(sub="a\nb"),
    }
    async with listening(folder(BY_KEY)) as site:
        seen = {why: (await site.call(each)).status_code for why, each in bad.items()}
        assert (await site.call(token(sub="Ada Lovelace"))).status_code == 200
        assert (await site.call(token(exp=253_402_300_799, nbf=0.5))).status_code == 200
    assert seen == dict.fromkeys(seen, 401)


@contextmanager
def serve_keys(*keys):
    """Serve the issuer's key set on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"keys": list(keys)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()


async def test_keys_come_from_the_issuers_key_set(folder, listening):
    jwk = {**jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True), "kid": "one"}
    with serve_keys(jwk) as uri:
        async with listening(folder(f'{AUTH}jwks_uri = "{uri}"\n')) as site:
            assert (await site.call(token())).json()["result"]["structuredContent"]["tenant"] == "acme"
            assert (await site.call(token(OTHER_KEY))).status_code == 401
            stranger = jwt.encode(claims(), KEY, "RS256", headers={"kid": "two"})
            assert (await site.call(stranger)).status_code == 401


async def test_metrics_are_for_admins_where_callers_need_tokens(folder, listening):
    async with listening(folder(BY_KEY)) as site:
        assert (await site.get("/metrics")).status_code == 401
        assert (await site.get("/metrics", authorization=f"Bearer {token()}")).status_code == 403
        assert (await site.get("/metrics", authorization=f"Bearer {token(roles=['admin'])}")).status_code == 200
