"""What every process of a node would do alike: the first does it, the others wait and are told what came of it.

Nothing here needs the processes to have met: they may wait for hours where a collective would have timed out.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from filelock import Timeout

from launcher import cache
from launcher.machine import started_local_rank

if TYPE_CHECKING:
    from filelock import FileLock

log = logging.getLogger(__name__)

MOST_WAITED = 6 * 3600.0  # seconds that a process waits for one that works: downloads and tokenisation may take hours
HEAD_START = 60.0  # seconds that the first has to turn up; processes of one launch start within seconds
POLL = 0.1  # seconds


@dataclass
class Turn:
    """`answer` is what the first has told the others, None where it told nothing; the first sets it, for them.

    `is_alone` says that no other process of this node is at it: what is shared may be written.
    """

    answer: str | None = None
    is_alone: bool = False


@contextmanager
def once_per_node(key: str) -> Iterator[Turn]:
    """What is inside runs on the node's first process (local rank 0) first, and on the others once it is through.

    Where it ends without an answer (an error, a crash) the others find None, as they do where it never comes. Runs
    at the same time take turns too. A lock goes with its process, however that ends.
    """
    name = f"{key}.{platform.node()}"
    turn = Turn()
    try:
        lock = cache.lock_of("turns", name)
        if started_local_rank() > 0:
            turn.answer = _told(lock, name)
        elif _take(lock):
            turn.is_alone = True
            _tell(name, None)
    except OSError as error:
        # To the others the same happens: they do not wait.
        log.warning("%s cannot be locked (%s): each process does its own reading", cache.cache_folder(), error.strerror)
    try:
        yield turn
        if turn.is_alone:
            _tell(name, turn.answer)
    finally:
        if turn.is_alone:
            lock.release()


def _take(lock: FileLock) -> bool:
    """False where another run has held it for too long."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("another run is at the same data: waiting for it")
        try:
            lock.acquire(timeout=MOST_WAITED)
        except Timeout:
            log.warning("the other run has not come to an end of it: not waiting any longer")
            return False
    return True


def _told(lock: FileLock, name: str) -> str | None:
    """The answer, once the lock is free; None where there is none, or nobody has come to give one."""
    since = psutil.Process().create_time()
    deadline = time.monotonic() + HEAD_START
    while True:
        try:
            with lock.acquire(timeout=MOST_WAITED):
                # Looked at with the lock in hand: who has left a word now is through, or will never be.
                word: dict[str, Any] = cache.read("turns", name) or {"time": 0.0}
        except Timeout:
            return None
        if word["time"] >= since:  # else it is an earlier launch's, and the data may have changed since
            answer: str | None = word["answer"]
            return answer
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL)


def _tell(name: str, answer: str | None) -> None:
    cache.write("turns", name, {"time": time.time(), "answer": answer})
