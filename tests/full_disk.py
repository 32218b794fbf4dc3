"""A limit of the size of files: writing ends as on a full disk, with a part of the content and an OSError."""

import os
import resource
import warnings
from collections.abc import Callable


def errno_on_full_disk(size: int, call: Callable[[], object]) -> int:
    """Return the error number of `call` in a forked process that writes no file beyond `size` bytes; 0 if it succeeds.

    In this process, the limit would also end the output of other threads and of pytest's capture. Python ignores the
    signal.

    Returns:
        255 for other exceptions.
    """
    with warnings.catch_warnings(action="ignore"):  # Python 3.12: of threads, which `call` does not need
        child = os.fork()
    if not child:
        code = 255
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            call()
            code = 0
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)  # without pytest's end of a session
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
