"""The second turn of consolidation: its prompt, and the model's decisions about new statements beside known ones."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from butlers.modules.memory.domain.consolidation_prompt import escape_data
from butlers.modules.memory.domain.fact_comparison import Statement

MAX_QUESTIONS = 20
_MAX_CHARACTERS = 500
_MAX_OUTPUT_CHARACTERS = 100_000


class UpdateDecision(StrEnum):
    """What a new statement is to a known one."""

    UPDATE = "update"
    SAME = "same"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class UpdateQuestion:
    """A new statement and the known one it is compared with."""

    new: Statement
    known: Statement


def assemble_questions(instructions: str, questions: Sequence[UpdateQuestion]) -> str:
    """The prompt with the questions, numbered from 1."""
    blocks = [
        f"\n## {number}\n\n- known: {_line(each.known)}\n- new: {_line(each.new)}\n"
        for number, each in enumerate(questions, 1)
    ]
    return f"{instructions.rstrip()}\n\n# Statements\n{''.join(blocks)}"


def _line(statement: Statement) -> str:
    key = f"[{escape_data(statement.subject)}] [{escape_data(statement.predicate)}]"
    return f"{key}: {escape_data(statement.content[:_MAX_CHARACTERS])}"


def parse_decisions(output: str, count: int) -> dict[int, UpdateDecision]:
    """The decisions of the last JSON object that has some, by number; what can't be read is left out."""
    decided: dict[int, UpdateDecision] = {}
    for found in _json_objects(output[:_MAX_OUTPUT_CHARACTERS]):
        if isinstance(entries := found.get("decisions"), list):
            decided = dict(each for entry in entries[:MAX_QUESTIONS] if (each := _decision(entry, count)))
    return decided


def _decision(entry: Any, count: int) -> tuple[int, UpdateDecision] | None:
    if not isinstance(entry, dict):
        return None
    number, decision = entry.get("number"), entry.get("decision")
    if not isinstance(number, int) or not 1 <= number <= count or decision not in set(UpdateDecision):
        return None
    return number, UpdateDecision(decision)


def _json_objects(output: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that start a line."""
    decoder, start = json.JSONDecoder(strict=False), 0
    while (start := output.find('{"decisions"', start)) >= 0:
        try:
            found, start = decoder.raw_decode(output, start)
        except (ValueError, RecursionError):
            start += 1
        else:
            yield found
