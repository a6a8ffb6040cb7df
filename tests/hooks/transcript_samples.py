"""One session in the transcript format of each agent: two prompts, a tool, memories that were put in, two answers."""

from typing import Any

FACT = "Darjeeling, the first flush"
BLOCK = f"# Memory Context\n- [user] [favourite_tea]: {FACT} (confidence: 1.00)"
PROMPTS = ["Which tea do I drink?", "And <b>milk</b>?"]
ANSWER = f"You drink {FACT}. I wrote it on the list."
TOOLS = {"Bash": 1}

Entries = list[dict[str, Any]]


def _claude() -> Entries:
    def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"type": role, "message": {"role": role, "content": content}, **more}

    context = {"type": "hook_additional_context", "content": [BLOCK], "hookEvent": "SessionStart"}
    return [
        {"type": "attachment", "attachment": context},
        message("user", PROMPTS[0]),
        message("assistant", [{"type": "text", "text": "Let me see."}]),
        message("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}]),
        message("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a private file"}]),
        message("user", "<command-name>/cost</command-name>"),
        message("user", "A summary of the session so far", isCompactSummary=True),
        message("assistant", [{"type": "text", "text": "A subagent says"}], isSidechain=True),
        message("user", PROMPTS[1]),
        message("assistant", [{"type": "text", "text": ANSWER}]),
        {"type": "summary", "summary": "Tea"},
    ]


def _codex() -> Entries:
    def item(kind: str, **more: Any) -> dict[str, Any]:
        return {"timestamp": "2026-11-18T09:26:59.576Z", "type": "response_item", "payload": {"type": kind, **more}}

    def message(role: str, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return item("message", role=role, content=[{"type": kind, "text": text}])

    return [
        {"type": "session_meta", "payload": {"id": "01a1", "cwd": "/projects/tea"}},
        message("developer", "<skills_instructions>## Skills</skills_instructions>"),
        message("user", "<environment_context>\n  <cwd>/projects/tea</cwd>\n</environment_context>"),
        message("developer", BLOCK),
        message("user", PROMPTS[0]),
        item("reasoning", summary=[]),
        item("function_call", name="Bash", arguments="{}", call_id="call_1"),
        item("function_call_output", call_id="call_1", output="a private file"),
        {"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "AgentMessage"}}},
        message("user", PROMPTS[1]),
        message("assistant", ANSWER),
        {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": ANSWER}},
    ]


def _gemini() -> Entries:
    setup = {"id": "0", "type": "user", "content": [{"text": "<session_context>\nToday\n</session_context>"}]}
    first = f"<hook_context>{BLOCK}\n</hook_context>\n\n{PROMPTS[0]}"
    call = {"id": "c1", "name": "Bash", "args": {}, "result": [{"functionResponse": {"response": {"output": "x"}}}]}
    return [
        {"sessionId": "03623ed8", "projectHash": "9b", "kind": "main"},
        {"$set": {"messages": [setup], "lastUpdated": "2026-11-18T09:28:02.686Z"}},
        {"id": "1", "type": "user", "content": [{"text": first}]},
        {"id": "2", "type": "gemini", "content": "", "toolCalls": [call]},
        {"$set": {"lastUpdated": "2026-11-18T09:28:02.824Z"}},
        {"id": "3", "type": "user", "content": [{"text": "A mistake"}]},
        {"id": "4", "type": "gemini", "content": "A wrong answer"},
        {"$rewindTo": "3"},
        {"id": "5", "type": "user", "content": [{"text": "@milk.md …"}], "displayContent": [{"text": PROMPTS[1]}]},
        {"id": "6", "type": "gemini", "content": ANSWER, "thoughts": [], "model": "gemini-2.5-pro"},
        {"id": "7", "type": "info", "content": "Request cancelled."},
    ]


def _copilot() -> Entries:
    def entry(kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "id": "1", "timestamp": "2026-11-18T09:28:02.686Z", "parentId": None}

    return [
        entry("session.start", sessionId="s1", version=1, producer="copilot-agent"),
        entry("user.message", content=PROMPTS[0], attachments=[]),
        entry("assistant.turn_start", turnId="0"),
        entry("assistant.message", messageId="m1", content="", toolRequests=[{"toolCallId": "t1", "name": "Bash"}]),
        entry("tool.execution_start", toolCallId="t1", toolName="Bash", arguments={}),
        entry("tool.execution_complete", toolCallId="t1", success=True, result={"content": "a private file"}),
        entry("assistant.turn_end", turnId="0"),
        entry("user.message", content=PROMPTS[1]),
        entry("assistant.message", messageId="m2", content=ANSWER, toolRequests=[]),
    ]


def _cursor() -> Entries:
    def message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "message": {"content": list(content)}}

    query = "<timestamp>Today</timestamp>\n<user_query>\n{}\n</user_query>"
    return [
        message("user", {"type": "text", "text": query.format(PROMPTS[0])}),
        message("assistant", {"type": "tool_use", "name": "Bash", "id": "t1", "input": {}}),
        message("user", {"type": "tool_result", "tool_use_id": "t1", "content": "a private file"}),
        message("user", {"type": "text", "text": query.format(PROMPTS[1])}),
        message("assistant", {"type": "text", "text": ANSWER}),
    ]


def _opencode() -> Entries:
    def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"info": {"id": "msg_1", "role": role}, "parts": list(parts)}

    return [
        message(
            "user",
            {"type": "text", "text": PROMPTS[0]},
            {"type": "text", "text": "Called the Read tool with …", "synthetic": True},
        ),
        message(
            "assistant",
            {"type": "step-start"},
            {"type": "tool", "tool": "Bash", "callID": "c1", "state": {"status": "completed", "output": "x"}},
        ),
        message("user", {"type": "text", "text": PROMPTS[1]}),
        message("assistant", {"type": "text", "text": ANSWER}, {"type": "step-finish"}),
    ]


SAMPLES = {
    "claude": _claude(),
    "codex": _codex(),
    "copilot": _copilot(),
    "cursor": _cursor(),
    "gemini": _gemini(),
    "opencode": _opencode(),
}
SHOWS_CONTEXT = {"claude", "codex", "gemini"}
