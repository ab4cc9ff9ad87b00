"""A conversation at a terminal: questions from stdin, answers to stdout, everything else to stderr.

Ctrl-C ends the answer that is being given; where none is, it ends the conversation.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

from blockserver.client.chat import Conversation, Say, describe
from blockserver.threads import in_thread
from swarm.errors import LocalError, RemoteError

HELP = "/new begins anew · /route shows the servers · /quit ends · Ctrl-C stops an answer"


async def talk(
    made: Conversation, show: Say, tell: Say, *, read: Callable[[], str] = sys.stdin.readline, prompt: str = "> "
) -> None:
    """Until the input ends. `show` takes answers, `tell` the lines beside them."""
    tell(HELP + "\n")
    while True:
        tell(prompt)
        line = await in_thread("question", read)
        command = line.strip()
        if not line or command == "/quit":
            return
        if command.startswith("/"):
            await _do(command, made, tell)
        elif command:
            await _answer(made, command, show, tell)


async def _do(command: str, made: Conversation, tell: Say) -> None:
    if command == "/new":
        await made.begin_anew()
        tell("a new conversation\n")
    elif command == "/route":
        hops = made.route
        tell("".join(f"{hop.span.in_words()}: {hop.peer_id}\n" for hop in hops) or "no servers yet: ask something\n")
    else:
        tell(HELP + "\n")


async def _answer(made: Conversation, question: str, show: Say, tell: Say) -> None:
    """What goes wrong ends the answer, not the conversation."""
    answering = asyncio.create_task(made.ask(question, show))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, answering.cancel)
    try:
        answer = await answering
    except asyncio.CancelledError:
        show("\n")
        tell("[stopped]\n")
    except (LocalError, RemoteError) as error:
        tell(f"sepal: {error}\n")
    else:
        show("\n")
        tell(describe(answer) + "\n")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
