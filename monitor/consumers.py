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

    async def connect(self) -> None:
        page = self.scope["url_route"]["kwargs"]["page"]
        try:
            await self.channel_layer.group_add(group_of(page), self.channel_name)
        except (RedisError, OSError) as error:
            # Accepted first, since a refused handshake tells the browser nothing; the page polls and tries again.
            log.warning("no live updates: Redis does not answer (%s)", error)
            await self.accept()
            await self.close(TRY_AGAIN_LATER)
            return
        self.group = group_of(page)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        if self.group is not None:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def page_changed(self, event: dict[str, Any]) -> None:
        await self.send(text_data=event["text"])
