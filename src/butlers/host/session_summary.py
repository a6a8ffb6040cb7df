"""What is kept of a session: what was asked, what was done, what came out. Not what it was told to begin with."""

import re
from collections.abc import Iterator, Mapping

LONGEST_ASKED, LONGEST_ANSWER = 1_000, 2_000
_SHORTEST_RECALLED = 12
_MORE = " …"
_ITEM = re.compile(r"^- (?:\[[^\]]*\] )*(?:\[[^\]]*\]: )?(.*?)(?: \((?:confidence|maturity): [^)]*\))?$")


def summarize_session(
    prompt: str, tools: Mapping[str, int], injected: str, *, answer: str = "", error: str = ""
) -> str:
    """The key observations of a session, in a few bounded lines."""
    done = ", ".join(name if count == 1 else f"{name} {count} times" for name, count in sorted(tools.items()))
    lines = [
        f"Asked: {_bounded(prompt, LONGEST_ASKED)}",
        f"Done: called {done}." if done else "Done: answered without calling tools.",
    ]
    if error:
        lines.append(f"Failed: {_bounded(error, LONGEST_ASKED)}")
    elif came_out := without(answer, injected).strip():
        lines.append(f"Came out: {_bounded(came_out, LONGEST_ANSWER)}")
    return "\n".join(lines)


def without(text: str, injected: str) -> str:
    """The text without what memory put into the session: it is known already, and would be learned again as new."""
    # The longest first: a shorter one may be a part of it, and would leave the rest.
    for known in sorted(_recalled(injected), key=len, reverse=True):
        text = text.replace(known, "[recalled]")
    return "\n".join(line for line in text.splitlines() if line.strip(" -*\t") != "[recalled]")


def _recalled(injected: str) -> Iterator[str]:
    """The memories of a context block as they may be repeated: the whole line, and what the memory says."""
    for line in injected.splitlines():
        if (item := _ITEM.match(line)) and len(item[1]) >= _SHORTEST_RECALLED:
            yield line
            yield item[1]


def _bounded(text: str, longest: int) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= longest else folded[:longest] + _MORE
