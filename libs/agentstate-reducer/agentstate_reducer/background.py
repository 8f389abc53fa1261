"""Running a hook beside the request."""

from __future__ import annotations

import atexit
import importlib
import inspect
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple

from .calls import run_to_completion
from .keys import namespace_text
from .models import PrunedMessages, RememberFn

logger = logging.getLogger(__name__)

OnError = Callable[[BaseException, list[Any], Any], Any]

FIRST_PAUSE = 0.1
"""Seconds before the first retry; each further one waits twice as long."""

LONGEST_PAUSE = 5.0
"""Seconds that a retry waits at the most."""


class _Job(NamedTuple):
    messages: PrunedMessages
    namespace: Any
    done: Callable[[BaseException | None], None] | None


class Background:
    """Runs a hook on threads of its own, so that the caller does not wait for it.

    Calls for one namespace run one after another, in their order; calls for different namespaces
    run side by side. What was accepted is run before the interpreter ends. A `ReducingSaver` keeps
    it stored until then; elsewhere a process that is killed loses what it had not run yet.

    Args:
        fn: The hook, sync or async.
        workers: How many calls run at once.
        max_pending: How many calls may be accepted and not finished.
        on_full: What a call does at that limit: `"block"` waits for room, `"inline"` runs the hook
            in the calling thread once the earlier calls of its namespace are done, `"raise"`
            raises `BackgroundFull`, which `ReducingSaver` takes as a failed hook and tries again
            at its next save.
        retries: How often a call that raised is tried again.
        on_error: Called with the exception, the messages and the namespace when a call has finally
            failed. `None`: it is logged.

    Raises:
        ValueError: A number is out of range or `on_full` is unknown.
    """

    def __init__(
        self,
        fn: RememberFn,
        workers: int = 2,
        max_pending: int = 1000,
        on_full: Literal["block", "inline", "raise"] = "block",
        retries: int = 3,
        on_error: OnError | None = None,
    ) -> None:
        if workers < 1 or max_pending < 1:
            raise ValueError(
                f"workers and max_pending must be at least 1, got {workers} and {max_pending}"
            )
        if retries < 0:
            raise ValueError(f"retries must not be negative, got {retries}")
        if on_full not in ("block", "inline", "raise"):
            raise ValueError(f"on_full must be 'block', 'inline' or 'raise', got {on_full!r}")
        self.__wrapped__ = fn
        self.workers = workers
        self.max_pending = max_pending
        self.on_full = on_full
        self.retries = retries
        self.on_error = on_error
        self._closed = False
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """Set up an empty queue without threads: at the start, and in a child after a fork."""
        self._changed = threading.Condition()
        self._lanes: OrderedDict[str, deque[_Job]] = OrderedDict()
        self._running: dict[str, threading.Thread] = {}
        self._threads: set[threading.Thread] = set()
        self._pending = 0
        self._failed = 0

    @property
    def pending(self) -> int:
        """How many calls are accepted and not finished."""
        return self._pending

    @property
    def failed(self) -> int:
        """How many calls have finally failed."""
        return self._failed

    def __call__(self, pruned: Sequence[Any], namespace: Any) -> None:
        """Accept a call; run it here when this is closed.

        Args:
            pruned: The messages. They are copied into a list of the hook's own.
            namespace: Passed to the hook.

        Raises:
            BackgroundFull: Too many calls are pending and `on_full` is `"raise"`.
        """
        self._accept(_Job(PrunedMessages(pruned, getattr(pruned, "keys", ())), namespace, None))

    def submit(
        self,
        pruned: Sequence[Any],
        namespace: Any,
        done: Callable[[BaseException | None], None],
    ) -> None:
        """Accept a call, and say when it is finished.

        Args:
            pruned: The messages. They are copied into a list of the hook's own.
            namespace: Passed to the hook.
            done: Called on the thread that ran the hook, with what it finally failed on, or `None`,
                before the next call of its namespace begins.

        Raises:
            BackgroundFull: Too many calls are pending and `on_full` is `"raise"`.
        """
        self._accept(_Job(PrunedMessages(pruned, getattr(pruned, "keys", ())), namespace, done))

    def _accept(self, job: _Job) -> None:
        namespace = job.namespace
        lane = namespace_text(namespace)
        with self._changed:
            if not self._closed and self._has_room():
                self._pending += 1
                self._lanes.setdefault(lane, deque()).append(job)
                self._start_worker()
                return
            nested = self._running.get(lane) is threading.current_thread()
            if not nested:  # in this thread, and still after the earlier calls of the namespace
                self._changed.wait_for(lambda: not self._busy(lane))
                self._running[lane] = threading.current_thread()
                self._pending += 1
        if nested:  # the hook called for itself, and would wait for itself
            self._run(job)
            return
        try:
            self._run(job)
        finally:
            self._finish(lane)

    def _busy(self, lane: str) -> bool:
        return lane in self._lanes or lane in self._running

    def _has_room(self) -> bool:
        """Tell whether a call can be queued, waiting for room if that is asked for."""
        if self._pending < self.max_pending:
            return True
        if self.on_full == "raise":
            raise BackgroundFull(self._pending, self.max_pending)
        if self.on_full == "inline" or threading.current_thread() in self._threads:
            return False  # a worker that waited for room would wait for itself
        self._changed.wait_for(lambda: self._pending < self.max_pending or self._closed)
        return not self._closed

    def _start_worker(self) -> None:
        if len(self._threads) >= self.workers:
            return
        thread = threading.Thread(target=self._work, name="agentstate-reducer-hook", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: the drain at exit runs the queue
            self._threads.discard(thread)

    def _work(self) -> None:
        """Run queued calls until none is left that may run now."""
        me = threading.current_thread()
        while True:
            with self._changed:
                lane = next((lane for lane in self._lanes if lane not in self._running), None)
                if lane is None:
                    self._threads.discard(me)
                    self._changed.notify_all()
                    return
                queue = self._lanes[lane]
                job = queue.popleft()
                del self._lanes[lane]
                if queue:  # to the end of the line, so that no namespace starves another
                    self._lanes[lane] = queue
                self._running[lane] = me
            try:
                self._run(job)
            except BaseException as error:  # SystemExit, say: there is no caller to stop
                self._give_up(error, job)
            finally:
                self._finish(lane)

    def _finish(self, lane: str) -> None:
        with self._changed:
            del self._running[lane]
            self._pending -= 1
            if lane in self._lanes:
                self._start_worker()
            self._changed.notify_all()

    def _run(self, job: _Job) -> None:
        for attempt in range(self.retries + 1):
            handed = PrunedMessages(job.messages, job.messages.keys)
            try:
                result = self.__wrapped__(handed, job.namespace)
                if inspect.isawaitable(result):
                    run_to_completion(result)
            except Exception as error:
                if attempt == self.retries:
                    self._give_up(error, job)
                    return
            else:
                if job.done is not None:
                    job.done(None)
                return
            time.sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))

    def _give_up(self, error: BaseException, job: _Job) -> None:
        with self._changed:
            self._failed += 1
        try:
            self._report(error, job)
        finally:
            if job.done is not None:
                job.done(error)

    def _report(self, error: BaseException, job: _Job) -> None:
        if self.on_error is not None:
            try:
                self.on_error(error, list(job.messages), job.namespace)
                return
            except Exception:
                logger.exception("on_error of a Background raised")
        logger.error(
            "background hook %r failed, after %d retries at the most, on %d messages of "
            "namespace %r, keys %s",
            self.__wrapped__,
            self.retries,
            len(job.messages),
            job.namespace,
            ", ".join(job.messages.keys) or "unknown",
            exc_info=error,
        )

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything accepted is finished.

        Args:
            timeout: Seconds to wait. `None`: as long as it takes.

        Returns:
            Whether everything is finished.
        """
        with self._changed:
            if self._lanes:
                self._start_worker()
            return self._changed.wait_for(lambda: self._pending == 0, timeout)

    def close(self, wait: bool = True, timeout: float | None = None) -> bool:
        """Accept no more calls and wait for the accepted ones. Later calls run where they are made.

        Args:
            wait: Whether to wait. The accepted calls are run in any case.
            timeout: Seconds to wait. `None`: as long as it takes.

        Returns:
            Whether everything is finished.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return self.flush(timeout if wait else 0)

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Background({self.__wrapped__!r}, pending={self._pending}, failed={self._failed})"


class BackgroundFull(RuntimeError):
    """A `Background` has as many calls pending as it may.

    Attributes:
        pending: How many are pending.
        max_pending: How many may be.
    """

    def __init__(self, pending: int, max_pending: int) -> None:
        super().__init__(
            f"{pending} background calls are pending and max_pending is {max_pending}: "
            "add workers, raise max_pending, or let callers wait with on_full='block'"
        )
        self.pending = pending
        self.max_pending = max_pending


_all: weakref.WeakSet[Background] = weakref.WeakSet()


def _drain() -> None:
    for background in list(_all):
        background.close()


def _after_fork() -> None:
    """Start anew in a child: the threads stayed behind, and the parent runs what was accepted."""
    for background in list(_all):
        background._begin()


# An ordinary atexit handler runs after the executors of asyncio and concurrent.futures have shut,
# when a hook can no longer use them. This one runs before theirs, which is registered when
# concurrent.futures.thread is imported: the last registered runs first.
importlib.import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_drain)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
