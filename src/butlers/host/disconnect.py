"""Ends a request with its client: nobody will read the answer, and meanwhile it holds a database connection."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """Cancels a request whose client has gone before it was answered; its transaction is rolled back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, for as long as somebody waits for it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        working = asyncio.ensure_future(self._app(scope, exchange.receive, exchange.send))
        listening = asyncio.create_task(exchange.listen())
        try:
            await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not exchange.answered:
                working.cancel()
            await asyncio.wait({working})
        finally:
            listening.cancel()
            working.cancel()
        if not working.cancelled():
            working.result()


class _Exchange:
    """One request, listened to all the time: otherwise nobody notices that the client has gone."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._heard: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self.answered = False

    async def listen(self) -> None:
        """Pass on what the client sends, until it is gone."""
        while (message := await self._receive())["type"] != "http.disconnect":
            await self._heard.put(message)
        await self._heard.put(message)

    async def receive(self) -> Message:
        return await self._heard.get()

    async def send(self, message: Message) -> None:
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self.answered = True
