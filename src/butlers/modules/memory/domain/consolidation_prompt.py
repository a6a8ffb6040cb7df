"""The consolidation prompt: instructions, known facts and rules, and episodes escaped inside their tags."""

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.modules.memory.domain.text import one_line
from butlers.modules.memory.domain.tokens import CountTokens

KNOWN_SHARE = 1 / 3
"""The largest share of the tokens left after the instructions that known facts and rules may take."""
TRUNCATION_MARK = "… [cut]"
MAX_KNOWN_CHARACTERS = 1_000
"""Characters shown of a known memory."""
_NONE, _NONE_FIT = "None yet.\n", "There are some, but none found room here.\n"
_MAX_CHARACTERS_PER_TOKEN = 64
"""No token stands for more: a longer text is too long without counting its tokens."""
# Wide, small and struck-out forms that a later normalisation would turn into <, > and &.
_LOOKALIKES = str.maketrans(
    {
        "\uff1c": "&lt;",
        "\ufe64": "&lt;",
        "\u226e": "&#8814;",
        "\uff1e": "&gt;",
        "\ufe65": "&gt;",
        "\u226f": "&#8815;",
        "\uff06": "&amp;",
        "\ufe60": "&amp;",
    }
)


@dataclass(frozen=True, slots=True)
class PromptEpisode:
    """An episode as the model reads it."""

    id: UUID
    content: str
    happened_at: datetime
    importance: float = 5.0


@dataclass(frozen=True, slots=True)
class KnownFact:
    """A live fact as the model reads it."""

    id: UUID
    subject: str
    predicate: str
    content: str
    permanence: str
    scope: str


@dataclass(frozen=True, slots=True)
class KnownRule:
    """A live rule as the model reads it."""

    id: UUID
    content: str
    maturity: str
    scope: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text to send, its tokens, and the number of episodes in it, counted from the first."""

    text: str
    episode_count: int
    tokens: int


def assemble_prompt(
    instructions: str,
    butler: str,
    episodes: Sequence[PromptEpisode],
    facts: Sequence[KnownFact],
    rules: Sequence[KnownRule],
    *,
    max_tokens: int,
    count: CountTokens,
) -> Prompt:
    """A prompt of at most `max_tokens` with the nearest known memories and as many episodes as fit.

    The first episode is always included, truncated if necessary: one that never fits would be retried for ever.
    """
    opening = f"{instructions.rstrip()}\n\n# Material\n\nThe butler is called {escape_data(butler)}.\n"
    fixed = count(opening + _HEADING + _footer(len(episodes)))
    known = _known_sections(facts, rules, int((max_tokens - fixed) * KNOWN_SHARE), count)
    room = max_tokens - fixed - count(known)
    while True:
        blocks = _episode_blocks(episodes, room, count)
        text = f"{opening}{known}{_HEADING}{''.join(blocks)}{_footer(len(blocks))}"
        tokens = count(text)
        if tokens <= max_tokens or room <= 0:
            return Prompt(text, len(blocks), tokens)
        # Joined parts can have more tokens than the sum of their counts.
        room -= tokens - max_tokens


_HEADING = "\n## Episodes\n\n"


def _footer(episode_count: int) -> str:
    return f"\nThe episodes end here ({episode_count} in all). Answer with the JSON object described above."


def escape_data(text: str) -> str:
    """The text as one line that can't close its tag, even after a Unicode normalisation."""
    line = html.escape(one_line(text), quote=True).translate(_LOOKALIKES)
    # A leading combining mark would join the tag before it.
    return f" {line}" if line and unicodedata.category(line[0]).startswith("M") else line


def _known_sections(facts: Sequence[KnownFact], rules: Sequence[KnownRule], room: int, count: CountTokens) -> str:
    """The nearest facts and rules that fit into `room` tokens; facts get two thirds if there are rules as well."""
    fact_room = room if not rules else room * 2 // 3
    fact_lines, spent = _fitting_lines([_fact_line(fact) for fact in facts], fact_room, count)
    rule_lines, _ = _fitting_lines([_rule_line(rule) for rule in rules], room - spent, count)
    return f"\n## Known facts\n\n{fact_lines}\n## Known rules\n\n{rule_lines}"


def _fitting_lines(lines: Sequence[str], room: int, count: CountTokens) -> tuple[str, int]:
    """The lines that fit and their tokens; a line that is too long is skipped."""
    fitting, spent = [], 0
    for line in lines:
        cost = count(line)
        if spent + cost <= room:
            fitting.append(line)
            spent += cost
    return "".join(fitting) or (_NONE_FIT if lines else _NONE), spent


def _shorten(text: str) -> str:
    return escape_data(text) if len(text) <= MAX_KNOWN_CHARACTERS else f"{escape_data(text[:MAX_KNOWN_CHARACTERS])}…"


def _fact_line(fact: KnownFact) -> str:
    statement = f"[{escape_data(fact.subject)}] [{escape_data(fact.predicate)}]: {_shorten(fact.content)}"
    return f"- {fact.id} {statement} (permanence: {escape_data(fact.permanence)}, scope: {escape_data(fact.scope)})\n"


def _rule_line(rule: KnownRule) -> str:
    details = f"maturity: {escape_data(rule.maturity)}, scope: {escape_data(rule.scope)}"
    return f"- {rule.id} {_shorten(rule.content)} ({details})\n"


def _episode_blocks(episodes: Sequence[PromptEpisode], room: int, count: CountTokens) -> list[str]:
    """The first episodes, in order, that fit into `room` tokens; always at least one."""
    blocks: list[str] = []
    spent = 0
    for episode in episodes:
        content = escape_data(episode.content) if blocks else _truncate_to_fit(episode, room, count)
        if len(content) > max(room - spent, 1) * _MAX_CHARACTERS_PER_TOKEN:
            break
        block = _episode_block(episode, content)
        spent += count(block)
        if blocks and spent > room:
            break
        blocks.append(block)
    return blocks


def _episode_block(episode: PromptEpisode, content: str) -> str:
    attributes = f'id="{episode.id}" at="{episode.happened_at.isoformat()}" importance="{episode.importance:g}"'
    return f"<episode {attributes}>\n<episode_content>{content}</episode_content>\n</episode>\n"


def _truncate_to_fit(episode: PromptEpisode, room: int, count: CountTokens) -> str:
    """The longest beginning of the episode that fits into `room` tokens, found by binary search."""
    text = one_line(episode.content)
    high = min(len(text), max(room, 0) * _MAX_CHARACTERS_PER_TOKEN)
    if high == len(text) and count(_episode_block(episode, escape_data(text))) <= room:
        return escape_data(text)
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if count(_episode_block(episode, escape_data(text[:middle]) + TRUNCATION_MARK)) <= room:
            low = middle
        else:
            high = middle - 1
    return escape_data(text[:low]) + TRUNCATION_MARK
