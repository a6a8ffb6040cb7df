"""What a model is asked to distil: instructions, what is known, and episodes that can't leave their tags."""

import html
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.modules.memory.domain.text import one_line
from butlers.modules.memory.domain.tokens import CountTokens

KNOWN_SHARE = 1 / 3
"""Of the room beside the instructions, at most this for what is known already."""
CUT = "… [cut]"
LONGEST_KNOWN = 1_000
"""Characters of a known memory that are shown."""
_NONE, _NO_ROOM = "None yet.\n", "There are some, but none found room here.\n"
_CHARACTERS_A_TOKEN = 64
"""More than a token ever stands for: what is longer than this for each token of room is certainly too long."""
# Wide, small and struck-out forms that a normalisation would turn into the real ones, after they were escaped.
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
    """What is sent, and how many of the episodes, from the first, found room in it."""

    text: str
    taken: int
    tokens: int


def assemble_prompt(
    instructions: str,
    butler: str,
    episodes: Sequence[PromptEpisode],
    facts: Sequence[KnownFact],
    rules: Sequence[KnownRule],
    *,
    most_tokens: int,
    count: CountTokens,
) -> Prompt:
    """A prompt of at most so many tokens: what is nearest of the known, and as many episodes as fit.

    The first episode is always taken, shortened if it must be: one that never fits would be tried for ever.
    """
    opening = f"{instructions.rstrip()}\n\n# Material\n\nThe butler is called {escape_data(butler)}.\n"
    fixed = count(opening + _HEADING + _closing(len(episodes)))
    known = _known_sections(facts, rules, int((most_tokens - fixed) * KNOWN_SHARE), count)
    room = most_tokens - fixed - count(known)
    while True:
        blocks = _episode_blocks(episodes, room, count)
        text = f"{opening}{known}{_HEADING}{''.join(blocks)}{_closing(len(blocks))}"
        tokens = count(text)
        if tokens <= most_tokens or room <= 0:
            return Prompt(text, len(blocks), tokens)
        # Parts can cost more together than one by one.
        room -= tokens - most_tokens


_HEADING = "\n## Episodes\n\n"


def _closing(taken: int) -> str:
    return f"\nThe episodes end here ({taken} in all). Answer with the JSON object described above."


def escape_data(text: str) -> str:
    """A text in one line without anything that could end its tag, however it is normalised afterwards."""
    line = html.escape(one_line(text), quote=True).translate(_LOOKALIKES)
    # A mark at the beginning would belong to the tag before it.
    return f" {line}" if line and unicodedata.category(line[0]).startswith("M") else line


def _known_sections(facts: Sequence[KnownFact], rules: Sequence[KnownRule], room: int, count: CountTokens) -> str:
    """Facts and rules, the nearest first, as far as the room goes; where there are both, two thirds for facts."""
    for_facts = room if not rules else room * 2 // 3
    some_facts, spent = _fitting_lines([_fact_line(fact) for fact in facts], for_facts, count)
    some_rules, _ = _fitting_lines([_rule_line(rule) for rule in rules], room - spent, count)
    return f"\n## Known facts\n\n{some_facts}\n## Known rules\n\n{some_rules}"


def _fitting_lines(lines: Sequence[str], room: int, count: CountTokens) -> tuple[str, int]:
    """As many lines as fit; a long one must not keep the others out."""
    kept, spent = [], 0
    for line in lines:
        cost = count(line)
        if spent + cost <= room:
            kept.append(line)
            spent += cost
    return "".join(kept) or (_NO_ROOM if lines else _NONE), spent


def _shorten(text: str) -> str:
    return escape_data(text) if len(text) <= LONGEST_KNOWN else f"{escape_data(text[:LONGEST_KNOWN])}…"


def _fact_line(fact: KnownFact) -> str:
    about = f"[{escape_data(fact.subject)}] [{escape_data(fact.predicate)}]: {_shorten(fact.content)}"
    return f"- {fact.id} {about} (permanence: {escape_data(fact.permanence)}, scope: {escape_data(fact.scope)})\n"


def _rule_line(rule: KnownRule) -> str:
    about = f"maturity: {escape_data(rule.maturity)}, scope: {escape_data(rule.scope)}"
    return f"- {rule.id} {_shorten(rule.content)} ({about})\n"


def _episode_blocks(episodes: Sequence[PromptEpisode], room: int, count: CountTokens) -> list[str]:
    """The episodes from the first on, one after the other, as far as the room goes."""
    told: list[str] = []
    spent = 0
    for episode in episodes:
        content = escape_data(episode.content) if told else _truncate_to_fit(episode, room, count)
        if len(content) > max(room - spent, 1) * _CHARACTERS_A_TOKEN:
            break
        block = _episode_block(episode, content)
        spent += count(block)
        if told and spent > room:
            break
        told.append(block)
    return told


def _episode_block(episode: PromptEpisode, content: str) -> str:
    about = f'id="{episode.id}" at="{episode.happened_at.isoformat()}" importance="{episode.importance:g}"'
    return f"<episode {about}>\n<episode_content>{content}</episode_content>\n</episode>\n"


def _truncate_to_fit(episode: PromptEpisode, room: int, count: CountTokens) -> str:
    """As much of an episode as there is room for, found by halving."""
    whole = one_line(episode.content)
    most = min(len(whole), max(room, 0) * _CHARACTERS_A_TOKEN)
    if most == len(whole) and count(_episode_block(episode, escape_data(whole))) <= room:
        return escape_data(whole)
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if count(_episode_block(episode, escape_data(whole[:middle]) + CUT)) <= room:
            least = middle
        else:
            most = middle - 1
    return escape_data(whole[:least]) + CUT
