"""Tables of the `butlers memory hygiene` command."""

from typing import Any

from rich.console import Group, RenderableType

from butlers.cli.tables import TextTable, visible


def report(answer: dict[str, Any]) -> RenderableType:
    """Render the score, the findings with an example each, and what was fixed."""
    live = ", ".join(f"{number:,} {name}" for name, number in answer["live"].items())
    rows = [
        {
            "found": each["count"],
            "finding": each["kind"].replace("_", " "),
            "example": visible(_example(each["examples"][0])) if each["examples"] else "",
            "remedy": each["remedy"] if each["count"] else "",
        }
        for each in answer["findings"]
    ]
    parts: list[RenderableType] = [
        visible(f"{answer['score']} of 100 ({answer['formula']}) for {live}."),
        TextTable("found | finding / example / remedy", rows),
        *(visible(f"Note: {each}.") for each in answer["notes"]),
    ]
    if "request_id" in answer:
        forgotten = ", ".join(f"{number:,} {name}" for name, number in answer["forgotten"].items()) or "nothing"
        left = f" {answer['left']:,} are left for the next fix." if answer["left"] else ""
        parts.append(visible(f"Forgot {forgotten}.{left} The request {answer['request_id']} undoes it."))
    return Group(*parts)


def _example(example: dict[str, Any]) -> str:
    if "names" in example:
        return " and ".join(example["names"])
    if "kinds" in example:
        return f"{example['memory_type']} {example['id']}: {', '.join(example['kinds'])}"
    text = _words(example)
    return f"{text} beside {_words(example['beside'])}" if "beside" in example else text


def _words(example: dict[str, Any]) -> str:
    key = " · ".join(example[name] for name in ("subject", "predicate") if name in example)
    content = example["content"][:80]
    return f"{key}: {content}" if key else str(content)
