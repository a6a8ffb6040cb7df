"""ASGI middleware that cancels a request when its client disconnects, to free its database connection."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """Cancels a request whose client disconnects before the response is sent; its transaction is rolled back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request until it is answered or the client disconnects."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        response_task = asyncio.ensure_future(self._app(scope, exchange.messages.get, exchange.send))
        listen_task = asyncio.create_task(exchange.listen())
        try:
            await asyncio.wait({response_task, listen_task}, return_when=asyncio.FIRST_COMPLETED)
            if not exchange.answered:
                response_task.cancel()
            await asyncio.wait({response_task})
        finally:
            listen_task.cancel()
            response_task.cancel()
        if not response_task.cancelled():
            response_task.result()


class _Exchange:
    """One request whose messages are read all the time: a disconnect is only seen by reading."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self.answered = False

    async def listen(self) -> None:
        """Queue the client's messages until it disconnects."""
        while (message := await self._receive())["type"] != "http.disconnect":
            await self.messages.put(message)
        await self.messages.put(message)

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.answered = True
