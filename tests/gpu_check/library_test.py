"""libablate_cuda.so refuses a program of another build before anything else, so without a GPU too.
Usage: library_test.py LIBRARY INTERFACE, the latter being the build's own."""

import ctypes
import sys

WRONG_BUILD = 1


def main(path, interface):
    library = ctypes.CDLL(path)
    problems = []
    for given in (interface, interface[:-1] + ("0" if interface[-1] != "0" else "1"), "0.1.0", "", None):
        name = None if given is None else given.encode()
        error, count, out = ctypes.create_string_buffer(1024), ctypes.c_int(), ctypes.c_void_p()
        listed = library.ablate_cuda_devices(name, None, 0, ctypes.byref(count), error, len(error))
        if (listed == WRONG_BUILD) != (given != interface):
            problems.append(f"devices of {given!r}: {listed} {error.value}")
        if given == interface:
            continue
        opened = library.ablate_cuda_open(name, None, ctypes.byref(out), error, len(error))
        said = error.value.decode()
        if opened != WRONG_BUILD or out.value or "of another build" not in said or interface not in said or ("unnamed" if given is None else given) not in said:
            problems.append(f"open by {given!r}: {opened} {said}")
    print("\n".join(problems) or f"{path} serves {interface} alone")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
