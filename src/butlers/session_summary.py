"""Summary of a session for its episode: the prompt, the tools called and the answer, without injected memories."""

import re
from collections.abc import Iterator, Mapping

MAX_PROMPT_CHARACTERS, MAX_ANSWER_CHARACTERS = 1_000, 2_000
_MIN_MEMORY_CHARACTERS = 12
# Every memory is looked for in the answer: limits on both keep the time of that small.
_MAX_SEARCHED_CHARACTERS = 20 * MAX_ANSWER_CHARACTERS
_MAX_INJECTED_CHARACTERS = 400_000
_LABELS = re.compile(r"- (?:\[[^\]]*\] )*(?:\[[^\]]*\]: )?")
_SCORES = (" (confidence: ", " (maturity: ")


def summarize_session(
    prompt: str, tools: Mapping[str, int], injected: str, *, answer: str = "", error: str = ""
) -> str:
    """Return the summary: at most three lines of limited length."""
    calls = ", ".join(name if count == 1 else f"{name} {count} times" for name, count in sorted(tools.items()))
    lines = [
        f"Asked: {_shorten(prompt, MAX_PROMPT_CHARACTERS)}",
        f"Done: called {calls}." if calls else "Done: answered without calling tools.",
    ]
    if error:
        lines.append(f"Failed: {_shorten(error, MAX_PROMPT_CHARACTERS)}")
    elif result := remove_injected(answer[:_MAX_SEARCHED_CHARACTERS], injected).strip():
        lines.append(f"Result: {_shorten(result, MAX_ANSWER_CHARACTERS)}")
    return "\n".join(lines)


def remove_injected(text: str, injected: str) -> str:
    """Return the text without memories that were injected: they would be learned again as new."""
    # Longest first: a shorter memory may be part of a longer one.
    for memory in sorted(set(_injected_memories(injected[:_MAX_INJECTED_CHARACTERS])), key=len, reverse=True):
        text = text.replace(memory, "[recalled]")
    return "\n".join(line for line in text.splitlines() if line.strip(" -*\t") != "[recalled]")


def _injected_memories(injected: str) -> Iterator[str]:
    """Yield each memory of a context block as its whole line, as its content and as it reads without escaping."""
    for line in injected.splitlines():
        if labels := _LABELS.match(line):
            score = line.rfind(" (")
            ends_with_score = line.endswith(")") and line.startswith(_SCORES, score)
            content = line[labels.end() : score if ends_with_score else None]
            if len(content) >= _MIN_MEMORY_CHARACTERS:
                yield from (line, content, content.replace("&lt;", "<"))


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + " …"
