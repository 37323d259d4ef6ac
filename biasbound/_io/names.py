"""Names that a file brings: checked before they become paths, and before they reach a terminal.

Whoever wrote a file may have written `../../victim` or an escape sequence where a name should stand.
"""

import os
import re
from pathlib import Path

__all__ = ["checked_name", "no_links", "shown"]

# What a terminal acts on instead of showing it; lone surrogates are bytes that were no UTF-8.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
LONGEST = 200  # bytes: file systems allow 255, and neighbours of a file have longer names


def shown(text: str) -> str:
    r"""The same text with control characters, and those that turn the line around, as \x1b, \u202e and the like."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def checked_name(name: str, where: str) -> str:
    """One part of a path, as a file gave it; what could lead elsewhere is refused in a sentence about `where`."""
    plain = bool(name) and not name.startswith((".", "~")) and not any(sign in name for sign in "/\\\n\t")
    if not plain or HIDDEN.search(name) or len(name.encode(errors="surrogatepass")) > LONGEST:
        kept = shown(name[:60]).replace("\n", r"\n").replace("\t", r"\t")
        raise ValueError(
            f"{where}: the name '{kept}' cannot be that of a folder; use letters, digits, '-', '_' and single dots"
        )
    return name


def no_links(root: Path, leave: str) -> None:
    """Refuse a folder that holds a symbolic link, outside of `leave`: whoever made one chose where we write."""
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(place, name)):
                path = shown(os.path.join(place, name))
                raise ValueError(f"{path} is a symbolic link, and nothing is written through one; remove it")
        folders[:] = [name for name in folders if name != leave]
