"""One WebSocket per tab: joins the page's group and forwards what is sent to it. Neither queries nor renders."""

from __future__ import annotations

import logging
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError

from monitor.live import group_of

log = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013


class PageConsumer(AsyncWebsocketConsumer):
    group: str | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        except (RedisError, OSError) as error:
            log.warning("no live updates: Redis does not answer (%s)", error)
            if self.group is None:
                # Accepted first, since a refused handshake tells the browser nothing; the page polls and tries again.
                await send({"type": "websocket.accept"})
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})

    async def connect(self) -> None:
        group = group_of(self.scope["url_route"]["kwargs"]["page"])
        await self.channel_layer.group_add(group, self.channel_name)
        self.group = group
        await self.accept()

    async def disconnect(self, code: int) -> None:
        if self.group is not None:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def page_changed(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])
