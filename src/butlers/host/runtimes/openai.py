"""Any chat-completions server as a runtime: Ollama, llama.cpp, vLLM, OpenAI. The loop around tool calls is ours."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2

from butlers.config import RuntimeConfig
from butlers.config_types import is_loopback
from butlers.contract import Usage
from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes import tool_calls
from butlers.host.runtimes.runtime import MOST_ANSWER_BYTES, RuntimeResult, SessionTask, session_timeout
from butlers.host.runtimes.tool_calls import Message, ToolClient

MOST_TURNS = 30
"""A model that goes on calling tools for longer than this is going round in circles."""
_PASSING = frozenset({408, 409, 425, 429})
_SERVERS_OWN = 500
_NOT_FOR_US = frozenset({401, 403, 404})
_PAUSES = (1.0, 3.0, 9.0)
_LONGEST_PAUSE = 30.0


class OpenAiRuntime:
    """Asks the configured model, carries out the tool calls it answers with, and asks again until it only talks."""

    name = "openai"

    def __init__(self, config: RuntimeConfig, pauses: Sequence[float] = _PAUSES) -> None:
        self._url = f"{(config.base_url or '').rstrip('/')}/chat/completions"
        self._model = config.model or ""
        self._key_variable = config.api_key_env
        self._pauses = pauses

    def check(self) -> None:
        """Return when the key that is needed is there; whether the server is shows when it is asked."""
        key = self._key()
        if self._key_variable and (not key or not key.isascii() or not key.isprintable() or " " in key):
            raise Unavailable(
                f"the environment variable {self._key_variable} {'holds no key' if key else 'is not set'}",
                hint=f"Export {self._key_variable} with the server's API key.",
            )

    def _key(self) -> str:
        return os.environ.get(self._key_variable or "", "").strip()

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Ask until the model is done."""
        self.check()
        try:
            async with (
                asyncio.timeout(task.seconds),
                self._connected() as http,
                tool_calls.open_tools(task.mcp) as tools,
            ):
                return await self._talked(http, tools, task)
        except TimeoutError:
            raise session_timeout(task.seconds) from None

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[httpx2.AsyncClient]:
        key = self._key()
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        # The session's own time limit is the only one: a model may think for minutes before its first word.
        timeout = httpx2.Timeout(None, connect=10)
        # What is on this machine is reached directly, whatever proxy the environment names.
        outside = not is_loopback(urlsplit(self._url).hostname or "")
        async with httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=outside) as http:
            yield http

    async def _talked(self, http: httpx2.AsyncClient, tools: ToolClient, task: SessionTask) -> RuntimeResult:
        said: list[Message] = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
        said.append({"role": "user", "content": task.prompt})
        usage = Usage()
        for _ in range(MOST_TURNS):
            answer = await self._asked(http, said, tools.offered)
            message = _message(answer)
            usage = _added(usage, answer.get("usage"))
            calls = message.get("tool_calls")
            if not isinstance(calls, list) or not calls:
                spent = usage if usage != Usage() else None
                return RuntimeResult(_content(message.get("content")), _text(answer.get("id")), spent)
            said.append(message)
            said += [await tool_calls.execute_call(tools, call) for call in calls]
        raise SessionFailed(f"the model called tools {MOST_TURNS} times in a row without an answer")

    async def _asked(self, http: httpx2.AsyncClient, said: list[Message], offered: Sequence[Message]) -> Message:
        """One answer of the server, after as many attempts as make sense."""
        body: Message = {"model": self._model, "messages": said}
        if offered:
            body["tools"] = list(offered)
        for pause in (*self._pauses, None):
            status, answer, wait = await self._attempt(http, body)
            if pause is None or not (status in _PASSING or status >= _SERVERS_OWN):
                return _judged(status, answer, self._model)
            await asyncio.sleep(min(max(wait, pause), _LONGEST_PAUSE))
        raise AssertionError

    async def _attempt(self, http: httpx2.AsyncClient, body: Message) -> tuple[int, bytes, float]:
        try:
            # In ASCII: what a model said may hold characters that have no bytes.
            async with http.stream("POST", self._url, content=json.dumps(body)) as response:
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MOST_ANSWER_BYTES:
                        raise SessionFailed(f"the model answered more than {MOST_ANSWER_BYTES >> 20} MiB")
                return response.status_code, bytes(answer), _seconds(response.headers.get("retry-after"))
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            raise Unavailable(
                f"no model server answers at {httpx2.URL(self._url).netloc.decode()}",
                hint="Start it, or change butler.runtime.base_url in butler.toml.",
            ) from None
        except httpx2.InvalidURL:
            raise Unavailable(
                "butler.runtime.base_url is not an address", hint="Write http://HOST:PORT/v1."
            ) from None
        except httpx2.HTTPError as error:
            raise SessionFailed(f"the connection to the model broke: {type(error).__name__}") from None


def _judged(status: int, body: bytes, model: str) -> Message:
    """The server's answer as an object, or the fault it stands for."""
    if status in _NOT_FOR_US:
        raise Unavailable(
            f"the model server refuses {model} with status {status}",
            hint="Check butler.runtime.base_url and model, and the key that api_key_env names.",
        )
    if status != httpx2.codes.OK:
        raise SessionFailed(f"the model server answered with status {status}")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise SessionFailed("the model server answered something else than a JSON object")
    return answer


def _message(answer: Message) -> Message:
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise SessionFailed("the model server answered without a message")
    return message


def _content(said: Any) -> str:
    """The words of a message; some servers send them in parts."""
    if isinstance(said, list):
        return "".join(str(part.get("text") or "") for part in said if isinstance(part, dict))
    return said if isinstance(said, str) else ""


def _added(usage: Usage, said: Any) -> Usage:
    if not isinstance(said, dict):
        return usage
    taken, given = said.get("prompt_tokens"), said.get("completion_tokens")
    return Usage(usage.input_tokens + _count(taken), usage.output_tokens + _count(given))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _seconds(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0
    # Not a number is less than nothing, too.
    return seconds if seconds >= 0 else 0.0
