"""Files in kernels/cuda keep to the dialect of kernels/cuda/gpu.h, so that both nvcc and the emulator read them, and sums
keep their order. Usage: cuda_dialect_test.py ROOT. The rules are tried on lines that break them first."""

import os
import re
import sys

# Where a rule does not hold: the two halves of the dialect, and host code for the real device alone.
EVERYWHERE = ()
HALVES = ("kernels/cuda/device.h", "kernels/cuda/emulator/emulator.h", "kernels/cuda/emulator/types.h",
          "kernels/cuda/emulator/fiber.cc", "kernels/cuda/emulator/runtime.h")
# (pattern, why, paths it does not hold for, a line that breaks it)
RULES = [
    (r"<<<", "start kernels with Launch(...)", EVERYWHERE, "kernel<<<1, 2>>>(x);"),
    (r"\b__shared__\b", "write CUDA_SHARED or CUDA_DYNAMIC_SHARED", HALVES, "__shared__ float x[3];"),
    (r"\b__noinline__\b", "write GPU_NOINLINE", HALVES, "__noinline__ void f();"),
    (r"\basm\b", "instructions are behind ptx:: (kernels/cuda/device.h)", HALVES, 'asm volatile("bar.sync 0;");'),
    (r"\batomic(Add|Sub|Exch|Min|Max)\w*\s*\(\s*\(?\s*(reinterpret_cast<)?\s*(float|double|bf16|bf162|__nv_bfloat16|half)",
     "no floating-point atomics", HALVES, "atomicAdd((float*)p, 1.0f);"),
    (r"\batomic(Add|Exch|Sub)\s*\([^;]*?,\s*[-+]?(\d+\.\d*f?|\d*\.\d+f?)\s*\)", "no floating-point atomics", HALVES,
     "atomicAdd(p, 1.0f);"),
    (r"\batomic(?!(Add|Max|CAS)\b)[A-Z]\w*\s*\(", "the dialect has atomicAdd, atomicMax and atomicCAS", HALVES,
     "atomicAdd_block(p, 1);"),
    (r"\b(unsafeAtomicAdd|red\.|cuda::atomic|std::atomic_ref|cg::|cooperative_groups)\b",
     "the emulator does not know it", HALVES, "namespace cg = cooperative_groups;"),
    (r"\b__(nv_bfloat16|nv_bfloat162|half2?)\b", "write bf16, bf162", HALVES, "__nv_bfloat16 x;"),
    (r"\b__syncthreads_(and|or|count)\b|\b__activemask\b|\b__(match|reduce)_\w+_sync\b|\b__nanosleep\b|\b__trap\b",
     "the emulator does not know it", HALVES, "__activemask();"),
    (r"\b__shfl(_up|_down|_xor)?\(|\b__(any|all|ballot)\(", "warp intrinsics name their lanes: ..._sync", HALVES,
     "__shfl_down(x, 1);"),
    (r"#\s*include\s*[<\"](cuda|cub/|cooperative_groups|mma\.h|nv/)", "include kernels/cuda/gpu.h instead", HALVES,
     "#include <cuda_runtime.h>"),
    (r"\bprintf\s*\(", "no printing from kernels", ("host",), 'printf("%d", i);'),
    (r"\bthread_local\b", "the emulator's threads are one thread of the host", HALVES, "thread_local int x;"),
]
# cuBLAS is host code behind an interface; it may be included where it is called.
ALLOWED_INCLUDES = re.compile(r"#\s*include\s*<(cublas_v2|cublasLt|cuda_runtime_api)\.h>")
TEST_PROGRAMS = ("kernels/cuda/emulator/planted_kernels.cu",)


def without_comments(text):
    """Comments and strings emptied, lines and includes kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match):
        found = match.group()
        if not found.startswith('"'):
            return re.sub(r"[^\n]", " ", found)
        return found if found.endswith('.h"') else '""'  # an include

    return pattern.sub(blank, text)


def float_atomics(text):
    """atomicAdd on something declared float or double in the same file."""
    floats = set(re.findall(r"\b(?:float|double)\s*\*\s*(?:__restrict__\s+|const\s+)?(\w+)", text))
    floats |= set(re.findall(r"CUDA_(?:DYNAMIC_)?SHARED\(\s*(?:float|double)\s*,\s*(\w+)", text))
    for match in re.finditer(r"\batomicAdd\s*\(\s*&?\s*(\w+)", text):
        if match.group(1) in floats:
            yield text.count("\n", 0, match.start()) + 1


def problems_of(path, text):
    code = without_comments(text)
    kernel = path.endswith((".cu", ".cuh"))
    found = []
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, why, excepted, _ in RULES:
            if path in excepted or ("host" in excepted and (not kernel or path in TEST_PROGRAMS)):
                continue
            if re.search(pattern, line) and not ALLOWED_INCLUDES.search(line):
                found.append(f"{path}:{number}: {why}: {line.strip()}")
    if kernel:
        found += [f"{path}:{line}: no floating-point atomics" for line in float_atomics(code)]
    return found


def main(root):
    problems, seen = [], 0
    for pattern, why, _, line in RULES:
        if not problems_of("kernels/cuda/tried.cu", line + "\n"):
            problems.append(f"the rule '{why}' does not refuse: {line}")
    for line in ("void f(float* sums) { atomicAdd(&sums[3], x); }", "CUDA_SHARED(float, s, [3]);\natomicAdd(s, x);"):
        if not problems_of("kernels/cuda/tried.cu", line):
            problems.append(f"float atomics are not refused: {line}")
    for line in ("atomicAdd(&counts[i], 1u);", "// kernel<<<1, 2>>>", "Launch(k, 1, 32, 0, s, x);", "#include <cublas_v2.h>"):
        problems += [f"refused without reason: {p}" for p in problems_of("kernels/cuda/tried.cu", line)]
    for folder, _, files in os.walk(os.path.join(root, "kernels", "cuda")):
        for name in sorted(files):
            if name.endswith((".cu", ".cuh", ".h", ".cc")):
                path = os.path.relpath(os.path.join(folder, name), root)
                seen += name.endswith((".cu", ".cuh"))
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    problems += problems_of(path, file.read())
    if seen < 2:
        problems.append(f"only {seen} kernel files found under {root}: wrong folder?")
    print("\n".join(problems) or f"{seen} kernel files keep to the dialect")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
