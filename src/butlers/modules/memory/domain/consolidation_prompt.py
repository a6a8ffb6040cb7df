"""The consolidation prompt: instructions, known facts and rules, and episodes escaped inside their tags."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.modules.memory.domain.tokens import CountTokens, split_pieces
from butlers.prompt_text import escape_between_tags

KNOWN_SHARE = 1 / 3
"""The largest share of the tokens left after the instructions that known facts and rules may take."""
_PREDICATE_SHARE = 0.1
TRUNCATION_MARK = "… [cut]"
MAX_KNOWN_CHARACTERS = 1_000
"""Characters shown of a known memory."""
_NONE, _NONE_FIT = "None yet.\n", "There are some, but none found room here.\n"
_MAX_CHARACTERS_PER_TOKEN = 16
"""A text with more is too long without escaping it or counting its tokens. Real texts have about four."""
_JSON_START = re.compile(r'(\{ ?)"')


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
    known_left_out: int = 0
    """Known facts and rules that had no room."""


def assemble_prompt(
    instructions: str,
    butler: str,
    episodes: Sequence[PromptEpisode],
    facts: Sequence[KnownFact],
    rules: Sequence[KnownRule],
    *,
    predicates: Sequence[str] = (),
    max_tokens: int,
    count: CountTokens,
) -> Prompt:
    """A prompt of at most `max_tokens` with the nearest known memories and as many episodes as fit.

    The first episode is always included, truncated if necessary: one that never fits would be retried for ever.
    """
    opening = f"{instructions.rstrip()}\n\n# Material\n\nThe butler is called {escape_data(butler)}.\n"
    fixed = count(opening + _HEADING + _footer(len(episodes)))
    known_room = int((max_tokens - fixed) * KNOWN_SHARE)
    used = _predicate_section(predicates, int(known_room * _PREDICATE_SHARE), count)
    sections, left_out = _known_sections(facts, rules, known_room - count(used), count)
    known = used + sections
    room = max_tokens - fixed - count(known)
    while True:
        blocks = _episode_blocks(episodes, room, count)
        text = f"{opening}{known}{_HEADING}{''.join(blocks)}{_footer(len(blocks))}"
        tokens = count(text)
        if tokens <= max_tokens or room <= 0:
            return Prompt(text, len(blocks), tokens, left_out)
        # Joined parts can have more tokens than the sum of their counts.
        room -= tokens - max_tokens


_HEADING = "\n## Episodes\n\n"


def _footer(episode_count: int) -> str:
    return f"\nThe episodes end here ({episode_count} in all). Answer with the JSON object described above."


def max_content_characters(max_tokens: int) -> int:
    """The characters of an episode to fetch for a prompt: more than fit, so that it is seen to be cut."""
    return max_tokens * _MAX_CHARACTERS_PER_TOKEN + 1


def escape_data(text: str) -> str:
    """The text as one line that can't close its tag and contains no JSON object."""
    # A model may repeat its prompt: an object in a memory must not be read as the model's answer.
    return _JSON_START.sub(r"\1&quot;", escape_between_tags(text))


def _known_sections(
    facts: Sequence[KnownFact], rules: Sequence[KnownRule], room: int, count: CountTokens
) -> tuple[str, int]:
    """The nearest facts and rules that fit into `room` tokens, and the number of those that do not.

    Facts get two thirds if there are rules as well.
    """
    fact_room = room if not rules else room * 2 // 3
    fact_lines, spent = _fitting_lines([_fact_line(fact) for fact in facts], fact_room, count)
    rule_lines, _ = _fitting_lines([_rule_line(rule) for rule in rules], room - spent, count)
    left_out = len(facts) + len(rules) - len(fact_lines) - len(rule_lines)
    fact_text, rule_text = _section_text(fact_lines, facts), _section_text(rule_lines, rules)
    return f"\n## Known facts\n\n{fact_text}\n## Known rules\n\n{rule_text}", left_out


def _section_text(lines: Sequence[str], known: Sequence[KnownFact] | Sequence[KnownRule]) -> str:
    return "".join(lines) or (_NONE_FIT if known else _NONE)


def _predicate_section(predicates: Sequence[str], room: int, count: CountTokens) -> str:
    """The predicates in use that fit into `room` tokens; empty without any."""
    heading, spent, fitting = "\n## Predicates in use\n\n", 0, []
    for predicate in predicates:
        name = escape_data(predicate)
        spent += count(name) + 1
        if spent + count(heading) > room:
            break
        fitting.append(name)
    return f"{heading}{', '.join(fitting)}\n" if fitting else ""


def _fitting_lines(lines: Sequence[str], room: int, count: CountTokens) -> tuple[list[str], int]:
    """The lines that fit and their tokens; a line that is too long is skipped."""
    fitting: list[str] = []
    spent = 0
    for line in lines:
        if len(line) <= _max_characters(room - spent) and spent + (cost := count(line)) <= room:
            fitting.append(line)
            spent += cost
    return fitting, spent


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
        content = _fitting_content(episode, room - spent, count)
        if content is None and blocks:
            break
        block = _episode_block(episode, _truncate_to_fit(episode, room, count) if content is None else content)
        spent += count(block)
        if blocks and spent > room:
            break
        blocks.append(block)
    return blocks


def _episode_block(episode: PromptEpisode, content: str) -> str:
    attributes = f'id="{episode.id}" at="{episode.happened_at.isoformat()}" importance="{episode.importance:g}"'
    return f"<episode {attributes}>\n<episode_content>{content}</episode_content>\n</episode>\n"


def _fitting_content(episode: PromptEpisode, room: int, count: CountTokens) -> str | None:
    """The escaped content of the episode if its block fits into `room` tokens, else None."""
    if len(episode.content) > _max_characters(room):
        return None
    content = escape_data(episode.content)
    content_room = room - count(_episode_block(episode, ""))
    return content if _fitting_length(content, content_room, count) == len(content) else None


def _truncate_to_fit(episode: PromptEpisode, room: int, count: CountTokens) -> str:
    """The escaped beginning of the episode that fits into `room` tokens together with a mark."""
    content = escape_data(episode.content[: _max_characters(room)])
    content_room = room - count(_episode_block(episode, TRUNCATION_MARK))
    return content[: _fitting_length(content, content_room, count)] + TRUNCATION_MARK


def _fitting_length(text: str, room: int, count: CountTokens) -> int:
    """The characters at the start of the text that fit into `room` tokens; what follows them is not counted."""
    length = spent = 0
    for piece in split_pieces(text):
        cost = count(piece)
        if spent + cost > room:
            return length + _fitting_part(piece, room - spent, count)
        length, spent = length + len(piece), spent + cost
    return length


def _fitting_part(piece: str, room: int, count: CountTokens) -> int:
    """The characters at the start of a piece that fit, found by binary search."""
    return max(0, bisect_right(range(len(piece) + 1), room, key=lambda length: count(piece[:length])) - 1)


def _max_characters(tokens: int) -> int:
    return max(tokens, 0) * _MAX_CHARACTERS_PER_TOKEN
