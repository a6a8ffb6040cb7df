"""The instructions of the container file."""

import json
import re
import shlex

from .files import ROOT

Instruction = tuple[str, str]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).strip().splitlines()
    instructions = [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]
    starts = [number for number, (name, _) in enumerate(instructions) if name == "FROM"]
    return [instructions[start:end] for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True)]


def values(stage: list[Instruction], name: str) -> list[str]:
    """The arguments of every instruction of this name."""
    return [rest for each, rest in stage if each == name]


def settings(stage: list[Instruction], name: str) -> dict[str, str]:
    """The pairs of LABEL or ENV."""
    return dict(pair.split("=", 1) for rest in values(stage, name) for pair in shlex.split(rest))


def command(stage: list[Instruction], name: str) -> list[str]:
    """The words of ENTRYPOINT or CMD."""
    (rest,) = values(stage, name)
    words: list[str] = json.loads(rest)
    return words


def copied_for_the_build() -> list[str]:
    """The files and folders that the first stage copies from the checkout."""
    return [word for rest in values(stages()[0], "COPY") for word in shlex.split(rest)[:-1]]
