"""Made credentials, put together at run time: none of them stands in a file, and none works anywhere."""

import random
import string


def make(characters: str, length: int, seed: int = 7) -> str:
    """Return a text of such characters with at least one letter and one digit."""
    rng = random.Random(seed)
    text = "".join(rng.choice(characters) for _ in range(length - 2))
    return f"{text}{rng.choice([each for each in characters if each.isalpha()])}{rng.choice('23456789')}"


WORD = string.ascii_letters + string.digits
LOWER_HEX, UPPER = "0123456789abcdef", string.ascii_uppercase + string.digits


def card(prefix: str, length: int, separator: str = "") -> str:
    """Return a card number with a valid check digit."""
    digits = (prefix + make("0123456789a", 30).replace("a", "0"))[: length - 1]
    total = sum(
        sum(divmod(int(each) * (2 if place % 2 == 0 else 1), 10)) for place, each in enumerate(reversed(digits))
    )
    whole = digits + str(-total % 10)
    return separator.join(whole[start : start + 4] for start in range(0, len(whole), 4))


def _dashes(words: str) -> str:
    return "-" * 5 + words + "-" * 5


def credentials() -> dict[str, tuple[str, str]]:
    """Return texts with a secret by name, each with the secret."""
    web_token = ".".join(("eyJ" + make(WORD, 30), make(WORD, 60), make(WORD, 40)))
    private = "\n".join(
        (_dashes("BEGIN RSA PRIVATE KEY"), make(WORD, 64), make(WORD, 64), _dashes("END RSA PRIVATE KEY"))
    )
    tokens = {
        "github": "ghp_" + make(WORD, 36),
        "github, fine-grained": "github_pat_" + make(WORD, 60),
        "gitlab": "glpat-" + make(WORD, 20),
        "aws": "AKIA" + make(UPPER, 16),
        "slack": "xoxb-" + "123456789012-1234567890123-" + make(string.ascii_lowercase + string.digits, 24),
        "stripe": "sk_live_" + make(WORD, 24),
        "sendgrid": "SG." + make(WORD, 22) + "." + make(WORD, 43),
        "google": "AIza" + make(WORD, 35),
        "openai": "sk-proj-" + make(WORD, 48),
        "anthropic": "sk-ant-api03-" + make(WORD, 80),
        "hugging face": "hf_" + make(WORD, 34),
        "npm": "npm_" + make(WORD, 36),
        "pypi": "pypi-AgEIcHlwaS5vcmc" + make(WORD, 80),
        "telegram": "123456789:" + make(WORD, 35),
        "twilio": "SK" + make(LOWER_HEX, 32),
        "discord": "M" + make(WORD, 23) + "." + make(WORD, 6) + "." + make(WORD, 27),
        "mailchimp": make(LOWER_HEX, 32) + "-us12",
        "digital ocean": "dop_v1_" + make(LOWER_HEX, 64),
        "butlers": "butlers_" + make(WORD, 43),
        "web token": web_token,
        "private key": private,
    }
    texts = {name: (f"I put {secret} into the settings, it works now.", secret) for name, secret in tokens.items()}
    plain = make(WORD, 12)
    generic = make(WORD, 32)
    return texts | {
        "password in a sentence": (f"Her password is {plain}, she said.", plain),
        "password for a site": (f"The password for the router is {plain}.", plain),
        "password with symbols": ("password: tr0ub4dor&3", "tr0ub4dor&3"),
        "password in German": (f"Das Passwort: {plain}", plain),
        "password of a variable": (f"export DB_PASSWORD={plain}", plain),
        "password in JSON": (f'{{"password": "{plain}"}}', plain),
        "password in a URL": (f"postgresql://ada:{plain}@db.example.org/app", plain),
        "api key": (f"api_key = '{generic}'", generic),
        "secret of a variable": (f"CLIENT_SECRET={generic}", generic),
        "access token": (f"The access token is {generic}", generic),
        "bearer": (f"Authorization: Bearer {generic}", generic),
        "visa": (f"Card {card('4', 16)} expires in May", card("4", 16)),
        "visa in groups": (f"Card {card('4', 16, ' ')} expires in May", card("4", 16, " ")),
        "mastercard": (f"pay with {card('52', 16, '-')}", card("52", 16, "-")),
        "amex": (f"the Amex {card('37', 15)}", card("37", 15)),
    }


HARMLESS = (
    "The primary_key = customer_address_id_2, and the access key = customer-address-id-2024.",
    "The password was changed yesterday.",
    "Ask for the password before you open the safe.",
    "Her password is important to her.",
    "The password: see the vault.",
    "The key is under the mat, and the token is blue.",
    "The session token is valid for an hour.",
    "The access key is kept in the vault of the office.",
    "password: <your password>",
    "password=$DB_PASSWORD api_key=${API_KEY}",
    "The meeting is on 2026-11-18T16:20:00+00:00, call +351 912 345 678.",
    "The fact 7f1c0e58-6d1f-4c38-9a53-0d4b6e1f2a77 supersedes 0a3d6c9e-1b2f-4d5a-8c7e-9f0a1b2c3d4e.",
    "idempotency_key: 7f1c0e58-6d1f-4c38-9a53-0d4b6e1f2a77",
    "Commit 3ba7ece4f0e0a1f4b9d2c8a7e6f5d4c3b2a19087 fixes it.",
    "Order 4000 1234 5678 9011 has four items.",
    "src/butlers/modules/memory/operations/consolidation_apply.py:306 fails in test_apply_2",
    "https://example.org/some/long/path/with-many-words-and-2-numbers?page=3&sort=created_at",
    "The IBAN starts with PT50 and the tracking number is RR123456789PT.",
    "1234567890123456 people, 1731945600000 milliseconds",
)
