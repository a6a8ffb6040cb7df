"""Runtime for chat-completions servers (Ollama, llama.cpp, vLLM, OpenAI), with the loop around tool calls."""

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from butlers.config import RuntimeConfig
from butlers.config_types import is_loopback
from butlers.contract import Usage
from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes import tool_calls
from butlers.host.runtimes.runtime import MAX_ANSWER_BYTES, RuntimeResult, SessionTask, session_timeout, token_count
from butlers.host.runtimes.tool_calls import Message, ToolClient

MAX_TURNS = 30
"""Limit for a model that keeps calling tools without an answer."""
_RETRY_STATUSES = frozenset({408, 409, 425, 429})
_MIN_SERVER_ERROR = 500
_REFUSED_STATUSES = frozenset({401, 403, 404})
_RETRY_DELAYS_SECONDS = (1.0, 3.0, 9.0)
_MAX_DELAY_SECONDS = 30.0


class OpenAiRuntime:
    """Calls the model and executes the tool calls it returns, until it answers without tool calls."""

    name = "openai"

    def __init__(self, config: RuntimeConfig, retry_delays: Sequence[float] = _RETRY_DELAYS_SECONDS) -> None:
        self._url = f"{(config.base_url or '').rstrip('/')}/chat/completions"
        self._model = config.model or ""
        self._key_variable = config.api_key_env
        self._retry_delays = retry_delays

    def check(self) -> None:
        """Raise `Unavailable` if a configured API key is missing. The server itself is not contacted."""
        key = self._key()
        if self._key_variable and (not key or not key.isascii() or not key.isprintable() or " " in key):
            raise Unavailable(
                f"the environment variable {self._key_variable} {'holds no key' if key else 'is not set'}",
                hint=f"Export {self._key_variable} with the server's API key.",
            )

    def _key(self) -> str:
        return os.environ.get(self._key_variable or "", "").strip()

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Call the model until it answers, and return the answer."""
        self.check()
        try:
            async with (
                asyncio.timeout(task.seconds),
                self._http_client() as http,
                tool_calls.open_tools(task.mcp) as tools,
            ):
                return await self._converse(http, tools, task)
        except TimeoutError:
            raise session_timeout(task.seconds) from None

    def _http_client(self) -> httpx2.AsyncClient:
        key = self._key()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        # No read timeout: a model may take minutes to answer, and the session has its own limit.
        timeout = httpx2.Timeout(None, connect=10)
        # Requests to this machine don't use a proxy.
        use_proxy = not is_loopback(urlsplit(self._url).hostname or "")
        return httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=use_proxy)

    async def _converse(self, http: httpx2.AsyncClient, tools: ToolClient, task: SessionTask) -> RuntimeResult:
        messages: list[Message] = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
        messages.append({"role": "user", "content": task.prompt})
        usage = Usage()
        for _ in range(MAX_TURNS):
            answer = await self._complete(http, messages, tools.schemas)
            message = _message(answer)
            usage = _add_usage(usage, answer.get("usage"))
            calls = message.get("tool_calls")
            if not isinstance(calls, list) or not calls:
                answer_id = answer["id"] if isinstance(answer.get("id"), str) else None
                reported = usage if usage != Usage() else None
                return RuntimeResult(_content(message.get("content")), answer_id, reported)
            messages.append(message)
            messages += [await tool_calls.execute_call(tools, call) for call in calls]
        raise SessionFailed(f"the model called tools {MAX_TURNS} times in a row without an answer")

    async def _complete(self, http: httpx2.AsyncClient, messages: list[Message], tools: list[Message]) -> Message:
        """Return the server's answer; retry errors that may pass."""
        body = {"model": self._model, "messages": messages, **({"tools": tools} if tools else {})}
        for delay in (*self._retry_delays, None):
            status, answer, retry_after = await self._post(http, body)
            if delay is None or not (status in _RETRY_STATUSES or status >= _MIN_SERVER_ERROR):
                return _parse_answer(status, answer, self._model)
            await asyncio.sleep(min(max(retry_after, delay), _MAX_DELAY_SECONDS))
        raise AssertionError

    async def _post(self, http: httpx2.AsyncClient, body: Message) -> tuple[int, bytes, float]:
        try:
            # json.dumps writes ASCII: a model's text may contain lone surrogates, which UTF-8 can't encode.
            async with http.stream("POST", self._url, content=json.dumps(body)) as response:
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise SessionFailed(f"the model answered more than {MAX_ANSWER_BYTES >> 20} MiB")
                return response.status_code, bytes(answer), _parse_seconds(response.headers.get("retry-after"))
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise Unavailable(
                f"no model server answers at {httpx2.URL(self._url).netloc.decode()}",
                hint="Start it, or change butler.runtime.base_url in butler.toml.",
            ) from None
        except httpx2.InvalidURL:
            raise Unavailable("butler.runtime.base_url is not a URL", hint="Write http://HOST:PORT/v1.") from None
        except httpx2.HTTPError as error:
            raise SessionFailed(f"the connection to the model broke: {type(error).__name__}") from None


def _parse_answer(status: int, body: bytes, model: str) -> Message:
    """Return the answer as a dict; raise `Unavailable` or `SessionFailed` for an error."""
    if status in _REFUSED_STATUSES:
        raise Unavailable(
            f"the model server refused {model} with status {status}",
            hint="Check butler.runtime.base_url and model, and the key that api_key_env names.",
        )
    if status != httpx2.codes.OK:
        raise SessionFailed(f"the model server answered with status {status}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise SessionFailed("the model server did not answer with a JSON object")
    return answer


def _message(answer: Message) -> Message:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise SessionFailed("the model server answered without a message")
    return message


def _content(content: Any) -> str:
    """Return the text of a message; some servers send it as a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _add_usage(usage: Usage, reported: Any) -> Usage:
    if not isinstance(reported, dict):
        return usage
    return Usage(
        usage.input_tokens + token_count(reported.get("prompt_tokens")),
        usage.output_tokens + token_count(reported.get("completion_tokens")),
    )


def _parse_seconds(header: str | None) -> float:
    # NaN fails the comparison, too.
    with contextlib.suppress(ValueError):
        return seconds if (seconds := float(header or 0)) >= 0 else 0.0
    return 0.0
