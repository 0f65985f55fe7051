"""Which exceptions say that work was broken off, not that it failed."""

from concurrent.futures import CancelledError


def is_interruption(error: BaseException) -> bool:
    """Whether call and session stay open after it, to be gone on with, as after a crash.

    So after a KeyboardInterrupt, SystemExit and asyncio's cancellation, which are no `Exception`,
    and after a cancelled future of `concurrent.futures`, which is one.
    """
    return not isinstance(error, Exception) or isinstance(error, CancelledError)
