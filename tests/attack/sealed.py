"""A process, with all that it starts, that the kernel kills when it asks for a socket to other machines.

A seccomp filter sees what no hook in Python does: libraries, child processes, programs of others. Sockets between
processes of one machine (AF_UNIX) are let through.
"""

import ctypes
import platform
import struct

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
CALLS = {"x86_64": 41, "aarch64": 198}  # the number of `socket`
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
KILL, ALLOW = 0x80000000, 0x7FFF0000
AF_UNIX = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("first", ctypes.c_void_p))


def seal() -> bool:
    """From now on; False where the system has no such filters."""
    number = CALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return False
    steps = [
        (LOAD, 0, 0, 0),  # which call
        (EQUAL, 0, 3, number),
        (LOAD, 0, 0, 16),  # its first argument: the family
        (EQUAL, 1, 0, AF_UNIX),
        (RETURN, 0, 0, KILL),
        (RETURN, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    return (
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0
    )
