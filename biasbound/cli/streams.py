"""What a command says, whatever its streams are: closed, a broken pipe, another encoding, a stranger's control characters."""

import os
import shutil
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import Any

__all__ = ["columns", "prepared", "report_of", "say", "silence"]


class _Shown:
    """A text stream through which no control character goes; a `patient` one goes on when nobody listens any more."""

    def __init__(self, stream: Any, patient: bool) -> None:
        from biasbound._io import shown

        self._stream, self._patient, self._shown = stream, patient, shown

    def write(self, text: str) -> int:
        try:
            self._stream.write(self._shown(text))
        except OSError:
            if not self._patient:
                raise
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            if not self._patient:
                raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepared() -> None:
    """Streams that can be written to; a descriptor that was closed must not become that of a data file."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name)
        if stream is None:
            stream = os.fdopen(os.dup(number), "w", encoding="utf-8")
        if isinstance(stream, _Shown):
            continue
        with suppress(AttributeError, ValueError):  # of a stream that somebody put there
            stream.reconfigure(errors="backslashreplace")
        bars = name == "stderr" and stream.isatty()  # whose progress bars are made of control characters
        setattr(sys, name, stream if bars else _Shown(stream, name == "stderr"))


def columns() -> int | None:
    """How many characters a line of the terminal has; None where the output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(sentence: str) -> None:
    """One sentence on stderr, if there is someone to read it."""
    from biasbound._io import shown

    with suppress(OSError, ValueError):
        print(f"biasbound: {shown(' '.join(sentence.split()))}", file=sys.stderr, flush=True)


def silence() -> None:
    """Nobody reads stdout any more: what is left goes nowhere, also at the interpreter's end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_of(error: BaseException, argv: list[str]) -> str:
    """Where the full story of an error that nobody foresaw is kept, for whoever mends it."""
    from biasbound import __version__

    story = f"biasbound {__version__}, python {sys.version}\n{argv!r}\n\n{''.join(traceback.format_exception(error))}"
    try:
        descriptor, path = tempfile.mkstemp(prefix="biasbound-report-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(story)
    except OSError as problem:
        return f"no report could be written ({problem.strerror})"
    return f"the full report is in {path}"
