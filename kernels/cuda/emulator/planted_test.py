"""A test of the tests: each planted bug of planted_kernels.cu is caught by the build that promises it, and the right form
of each kernel by none. Usage: planted_test.py PLAIN ASAN TSAN, each a command, or - where that build does not run here."""

import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ORDERS = ["forward", "reverse"] + [str(seed) for seed in range(1, 6)]

# What a run must print: patterns for the output of one program. Every build reports these, in every order.
ALWAYS = {
    "barrier_two_lines": r"failed: .*planted_kernels\.cu:\d+: kernel barrier_two_lines_kernel: .*\n.*block \(0,0,0\), thread"
                         r" .*planted_kernels\.cu:\d+: __syncthreads here, while thread \d+ waits at .*planted_kernels\.cu:\d+",
    "barrier_after_return": r"failed: [^$]*(returned: thread|after other threads returned)",
    "shuffle_and_barrier": r"failed: [^$]*deadlock: .*(__syncthreads at planted_kernels\.cu:\d+.*__shfl_xor_sync at planted_kernels|"
                           r"__shfl_xor_sync at planted_kernels\.cu:\d+.*__syncthreads at planted_kernels)",
    "lane_outside_mask": r"failed: [^$]*the calling lane is not in its own mask",
    "two_intrinsics": r"failed: [^$]*of one mask with this lane, waits in (__ballot_sync|__shfl_xor_sync)",
    "two_masks": r"failed: [^$]*(of one mask with this lane, waits in __shfl_sync at .* for lanes 0x|lane 16, which returned)",
    "shuffle_from_outside": r"failed: [^$]*__shfl_sync reads lane 0, which is not in its mask",
    "mask_of_returned_lanes": r"failed: [^$]*(names lane 31, which returned|deadlock: .*returned)",
    "mask_of_missing_lanes": r"failed: [^$]*names lane 8, which the block lacks",
    "dynamic_forgotten": r"failed: [^$]*without dynamic shared memory",
    "dynamic_too_large": r"failed: .*cudaErrorInvalidConfiguration\n.*more than the 101376",
    "too_many_threads": r"failed: .*cudaErrorInvalidConfiguration\n.*1024 threads",
    "empty_grid": r"failed: .*cudaErrorInvalidConfiguration",
    "ldmatrix_misaligned": r"failed: [^$]*ldmatrix: .*not 16-byte aligned",
    "ldmatrix_past_the_end": r"failed: [^$]*ldmatrix: .*not inside one array",
    "cp_async_misaligned_target": r"failed: [^$]*cp.async: the target is not 16-byte aligned",
    "cp_async_misaligned_source": r"failed: [^$]*cp.async: the source is not 16-byte aligned",
    "cp_async_past_the_target": r"failed: [^$]*cp.async: the target is not inside one array",
    "cp_async_target_not_shared": r"failed: [^$]*cp.async: the target is not inside one array of shared memory",
    "copy_past_the_end": r"failed: planted_kernels.cu:\d+: cudaMemcpy\(d.out.*cudaErrorInvalidValue",
    "copy_in_the_wrong_direction": r"failed: planted_kernels.cu:\d+: cudaMemcpy\(d.out.*cudaErrorInvalidValue",
    "uninitialised_shared": r"wrong: out\[127\] = -?nan",
    "fresh_device_memory": r"wrong: out\[0\] = -?nan",
}
# By AddressSanitizer and UndefinedBehaviorSanitizer, which name the line; the plain build may show nothing.
ASAN = {
    "shared_off_by_one": r"use-after-poison[^$]*shared_kernel[^$]*planted_kernels\.cu:\d+",
    "dynamic_off_by_one": r"use-after-poison[^$]*dynamic_shared_kernel[^$]*planted_kernels\.cu:\d+",
    "global_off_by_one": r"use-after-poison[^$]*global_kernel[^$]*planted_kernels\.cu:\d+",
    "freed_device_memory": r"heap-use-after-free[^$]*copy_kernel",
    "misaligned_float4": r"planted_kernels\.cu:\d+.*misaligned address",
    "local_array_too_large": r"stack-overflow",
    "host_follows_device_pointer": r"use-after-poison[^$]*planted_kernels\.cu:\d+",
}
# The builds without AddressSanitizer find writes into the guards around an array when the block or the kernel ends.
GUARDS = {
    "shared_off_by_one": r"failed: [^$]*block \(0,0,0\): written outside of shared array values of 512 bytes, at byte 512",
    "dynamic_off_by_one": r"failed: [^$]*written outside of shared array dynamic shared memory of 512 bytes, at byte 512",
    "global_off_by_one": r"failed: [^$]*written outside of a device array of 512 bytes, at byte 512",
}
# By ThreadSanitizer, in the forward order alone.
RACE = r"WARNING: ThreadSanitizer: data race[^$]*planted_kernels\.cu:\d+[^$]*[Pp]revious[^$]*planted_kernels\.cu:\d+"
TSAN = ["two_threads_one_word", "two_blocks_one_word", "count_not_atomic", "reduce_no_barrier_before_tree",
        "reduce_no_barrier_in_tree", "reduce_no_barrier_before_broadcast", "ring_no_barrier_after_wait",
        "ring_no_barrier_at_loop_end", "warp_exchange_no_syncwarp"]
# Wrong results of the plain build: the orders that show it, and those that do not. The second list is why
# ThreadSanitizer is there.
SHOWN = {
    "reduce_no_barrier_before_tree": (["forward"], ["reverse"]),
    "reduce_no_barrier_in_tree": (["forward"], ["reverse"]),
    "reduce_no_barrier_before_broadcast": (["reverse"], ["forward"]),
    "ring_no_wait": (["forward"], ["reverse"]),
    "ring_no_barrier_after_wait": (["forward", "reverse"], []),
    "ring_no_barrier_at_loop_end": (["reverse"], ["forward"]),
    "warp_exchange_no_syncwarp": ([], ["forward", "reverse"]),
    "two_threads_one_word": ([], ["forward", "reverse"]),
}
RIGHT = ["shared_right", "dynamic_right", "global_right", "float4_right", "ldmatrix_right", "cp_async_right", "local_array",
         "count_right", "reduce_right", "ring_right", "warp_exchange_right"]


def run(command, order, names):
    """Output by name. A program that runs several goes on after each."""
    done = subprocess.run(shlex.split(command) + [order] + names, capture_output=True, text=True, errors="replace")
    parts = re.split(r"^== (\w+)\n", done.stdout, flags=re.MULTILINE)
    if len(names) == 1:
        return {names[0]: "".join(parts[2:]) + done.stderr}
    return dict(zip(parts[1::2], parts[2::2])) | {"": done.stderr}


def checks(plain, asan, tsan):
    """(command, order, {name: pattern}); several names where none of them ends the program, and then stderr is empty."""
    listed = subprocess.run(shlex.split(plain) + ["--list"], capture_output=True, text=True, check=True).stdout.split()
    known = set(ALWAYS) | set(ASAN) | set(TSAN) | set(SHOWN) | set(RIGHT)
    assert set(listed) == known, f"planted_kernels.cu and this table differ: {set(listed) ^ known}"
    right = {name: r"^right\n$" for name in RIGHT}
    for order in ORDERS:
        yield plain, order, ALWAYS | GUARDS | right | {"": "^$"}
    for command, orders in ((asan, ORDERS[:3]), (tsan, ORDERS[:1])):
        if command != "-":
            for order in orders:
                yield command, order, ALWAYS | right | {"": "^$"}
    if asan != "-":
        for name, pattern in ASAN.items():
            yield asan, "forward", {name: pattern}
    if tsan != "-":
        for name in TSAN:
            yield tsan, "forward", {name: RACE}
    for name, (shows, hides) in SHOWN.items():
        for order in shows:
            yield plain, order, {name: r"^wrong: "}
        for order in hides:
            yield plain, order, {name: r"^right\n$"}


def main(plain, asan, tsan):
    problems, count = [], 0
    work = list(checks(plain, asan, tsan))
    with ThreadPoolExecutor(2) as pool:
        outputs = pool.map(lambda c: run(c[0], c[1], [name for name in c[2] if name]), work)
        for (command, order, patterns), output in zip(work, outputs):
            for name, pattern in patterns.items():
                count += 1
                if not re.search(pattern, output.get(name, "(it did not run)")):
                    problems.append(f"{command} {order} {name}: expected /{pattern}/, got:\n{output.get(name, '')[:2000]}")
    for label, command in (("AddressSanitizer", asan), ("ThreadSanitizer", tsan)):
        if command == "-":
            print(f"not tried: {label} does not run on this machine")
    print("\n".join(problems) or f"{count} results of planted and right kernels are as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
