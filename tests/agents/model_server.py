"""A model server that speaks the API of each agent and answers every prompt with one text."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import models
from models import RecordedRequest, Reply

EventStream = Callable[[str], Reply]


def model_server(text: str) -> AbstractAsyncContextManager[models.Model]:
    """A server whose model answers with this text, whichever agent asks."""

    def answer(request: RecordedRequest) -> Reply:
        path = request.path.partition("?")[0]
        stream = next((stream for ending, stream in _STREAMS.items() if path.endswith(ending)), None)
        return stream(text) if stream else models.as_json({"data": [], "models": []})

    return models.anything(answer)


def questions(model: models.Model) -> list[str]:
    """The bodies of the requests for an answer, as text."""
    return [
        json.dumps(request.body, ensure_ascii=False)
        for request in model.asked
        if any(request.path.partition("?")[0].endswith(ending) for ending in _STREAMS)
    ]


def tools(model: models.Model) -> str:
    """The tools of the last request, as text."""
    return json.dumps(model.asked[-1].body.get("tools"))


def _responses(text: str) -> Reply:
    """The answer of OpenAI's responses API, which Codex uses."""
    content = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": [message], "usage": usage}
    return _event_stream(
        [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": message},
            {"type": "response.completed", "response": response},
        ]
    )


def _completions(text: str) -> Reply:
    """The answer of OpenAI's chat completions API, which OpenCode uses."""
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    begin = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return _event_stream([{**chunk, "choices": [begin]}, {**chunk, "choices": [end], "usage": usage}], "[DONE]")


def _generated(text: str) -> Reply:
    """The answer of Gemini's API."""
    content = {"role": "model", "parts": [{"text": text}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return _event_stream([{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "test-model"}])


def _event_stream(events: Sequence[Mapping[str, Any]], end: str = "") -> Reply:
    names = [f"event: {event['type']}\n" if "type" in event else "" for event in events]
    lines = [f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(names, events, strict=True)]
    body = "".join([*lines, f"data: {end}\n\n" if end else ""])
    return Reply(body.encode(), headers={"Content-Type": "text/event-stream"})


_STREAMS: Mapping[str, EventStream] = {
    "/responses": _responses,
    "/chat/completions": _completions,
    ":streamGenerateContent": _generated,
    "/messages": models.writes,
}
