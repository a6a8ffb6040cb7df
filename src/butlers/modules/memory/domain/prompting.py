"""What a model is asked to distil: instructions, what is known, and episodes that can't leave their tags."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from butlers.modules.memory.domain.text import one_line
from butlers.modules.memory.domain.tokens import Count

KNOWN_SHARE = 1 / 3
"""Of the room beside the instructions, at most this for what is known already."""
CUT = "… [cut]"
_NONE = "None yet.\n"
_BYTES_A_TOKEN = 8
"""More than a token ever stands for, so that a text this long is certainly too long."""
# Wide and small forms that a normalisation would turn into the real ones, after they were escaped.
_LOOKALIKES = str.maketrans(
    {
        "\uff1c": "&lt;",
        "\ufe64": "&lt;",
        "\uff1e": "&gt;",
        "\ufe65": "&gt;",
        "\uff06": "&amp;",
        "\ufe60": "&amp;",
    }
)


@dataclass(frozen=True, slots=True)
class Observation:
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


def assembled(
    instructions: str,
    butler: str,
    episodes: Sequence[Observation],
    facts: Sequence[KnownFact],
    rules: Sequence[KnownRule],
    *,
    most_tokens: int,
    count: Count,
) -> Prompt:
    """A prompt of at most so many tokens: what is nearest of the known, and as many episodes as fit.

    The first episode is always taken, shortened if it must be: one that never fits would be tried for ever.
    """
    opening = f"{instructions.rstrip()}\n\n# Material\n\nThe butler is called {data(butler)}.\n"
    room = most_tokens - count(opening) - count(_closing(len(episodes)))
    known = _known(facts, rules, int(room * KNOWN_SHARE), count)
    room -= count(known)
    told, taken = _episodes(episodes, room, count)
    text = f"{opening}{known}\n## Episodes\n\n{told}{_closing(taken)}"
    return Prompt(text, taken, count(text))


def _closing(taken: int) -> str:
    return f"\nThe episodes end here ({taken} in all). Answer with the JSON object described above."


def data(text: str) -> str:
    """A text in one line without anything that could end its tag, however it is normalised afterwards."""
    return html.escape(one_line(text), quote=True).translate(_LOOKALIKES)


def _known(facts: Sequence[KnownFact], rules: Sequence[KnownRule], room: int, count: Count) -> str:
    """Facts and rules, the nearest first, as far as the room goes; where there are both, two thirds for facts."""
    for_facts = room if not rules else room * 2 // 3
    some_facts, spent = _fitting((_fact_line(fact) for fact in facts), for_facts, count)
    some_rules, _ = _fitting((_rule_line(rule) for rule in rules), room - spent, count)
    return f"\n## Known facts\n\n{some_facts or _NONE}\n## Known rules\n\n{some_rules or _NONE}"


def _fitting(lines: Iterable[str], room: int, count: Count) -> tuple[str, int]:
    kept, spent = "", 0
    for line in lines:
        cost = count(line)
        if spent + cost > room:
            break
        kept, spent = kept + line, spent + cost
    return kept, spent


def _fact_line(fact: KnownFact) -> str:
    about = f"[{data(fact.subject)}] [{data(fact.predicate)}]: {data(fact.content)}"
    return f"- {fact.id} {about} (permanence: {fact.permanence}, scope: {data(fact.scope)})\n"


def _rule_line(rule: KnownRule) -> str:
    return f"- {rule.id} {data(rule.content)} (maturity: {rule.maturity}, scope: {data(rule.scope)})\n"


def _episodes(episodes: Sequence[Observation], room: int, count: Count) -> tuple[str, int]:
    told = [_episode(episodes[0], _shortened(episodes[0], room, count))]
    spent = count(told[0])
    for episode in episodes[1:]:
        if len(episode.content) > room * _BYTES_A_TOKEN:
            break
        block = _episode(episode, data(episode.content))
        spent += count(block)
        if spent > room:
            break
        told.append(block)
    return "".join(told), len(told)


def _episode(episode: Observation, content: str) -> str:
    about = f'id="{episode.id}" at="{episode.happened_at.isoformat()}" importance="{episode.importance:g}"'
    return f"<episode {about}>\n<episode_content>{content}</episode_content>\n</episode>\n"


def _shortened(episode: Observation, room: int, count: Count) -> str:
    """As much of an episode as there is room for, found by halving."""
    whole = episode.content[: max(room, 1) * _BYTES_A_TOKEN]
    if len(whole) == len(episode.content) and count(_episode(episode, data(whole))) <= room:
        return data(whole)
    least, most = 0, len(whole)
    while least < most:
        middle = (least + most + 1) // 2
        if count(_episode(episode, data(whole[:middle]) + CUT)) <= room:
            least = middle
        else:
            most = middle - 1
    return data(whole[:least]) + CUT
