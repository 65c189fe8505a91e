#!/usr/bin/env bash
# What cmake/ablate_cuda_toolkit.cmake does with toolkits that are too old or broken: a configure that wants no more than
# what there is goes on, and says why. The toolkits are scripts, so it
# needs none; a real one is broken where there is one.
#   toolkit_test.sh CMAKE GENERATOR SOURCE_DIR
set -uo pipefail
cmake=$1 generator=$2 source=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

nvcc() {  # nvcc FOLDER RELEASE: one that says its release and compiles nothing
  mkdir -p "$1/bin" "$1/nvvm/libdevice"  # what CMake takes for a toolkit
  cat > "$1/bin/nvcc" <<END
#!/bin/sh
[ "\$1" != --version ] || { echo "Cuda compilation tools, release $2, V$2.1"; exit 0; }
echo "fatal error: cannot open the planted file" >&2
exit 1
END
  chmod +x "$1/bin/nvcc"
}

# configured CODE WORDS VARIABLE=VALUE... -- OPTION...
configured() {
  local code=$1 words=$2 got said variables=()
  shift 2
  while [ "$1" != -- ]; do variables+=("$1"); shift; done
  shift
  rm -rf "$dir/build"
  said=$(env -u CUDACXX -u CUDA_PATH "${variables[@]}" "$cmake" -S "$dir/project" -B "$dir/build" -G "$generator" "$@" 2>&1)
  got=$?
  # CMake breaks the lines of errors.
  if [ $((got != 0)) != "$code" ] || ! tr -s ' \n' ' ' <<< "$said" | grep -qF "$words"; then
    echo "expected $code and \"$words\" of: ${variables[*]} $*"$'\n'"got $got and: $said"
    failures=$((failures + 1))
  fi
}

mkdir "$dir/project"
cat > "$dir/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(tried LANGUAGES CXX)
include("$source/cmake/ablate_cuda_toolkit.cmake")
message(STATUS "with: \${ABLATE_WITH_CUDA}")
END
nvcc "$dir/old" 11.8
nvcc "$dir/older" 11.2
nvcc "$dir/broken" 12.4
configured 1 "ABLATE_CUDA=ONN: expected AUTO, ON or OFF" PATH="$PATH" -- -DABLATE_CUDA=ONN
configured 0 "not built (ABLATE_CUDA=OFF)" PATH="$PATH" -- -DABLATE_CUDA=OFF
configured 0 "not built ($dir/old/bin/nvcc is of CUDA 11.8, older than 12.0)" PATH="$dir/old/bin:$PATH" CUDA_HOME="$dir/older" --
configured 0 "not built ($dir/broken/bin/nvcc does not work: " PATH="$dir/broken/bin:$PATH" --
configured 0 "with: FALSE" PATH="$dir/broken/bin:$PATH" -- -DABLATE_CUDA=AUTO
configured 0 "$dir/old/bin/nvcc is of CUDA 11.8" PATH="$PATH" -- -DCMAKE_CUDA_COMPILER="$dir/old/bin/nvcc"
configured 1 "needs a CUDA toolkit of 12.0 or later with cuBLAS: $dir/old/bin/nvcc is of CUDA 11.8" PATH="$dir/old/bin:$PATH" -- -DABLATE_CUDA=ON
configured 1 "cuBLAS: $dir/broken/bin/nvcc does not work: " PATH="$dir/broken/bin:$PATH" -- -DABLATE_CUDA=ON
configured 0 "does not run: " PATH="$PATH" CUDACXX=/nowhere/nvcc --
if command -v nvcc > /dev/null; then  # a real one, broken
  configured 0 "/nonexistent.h: No such file" PATH="$PATH" NVCC_PREPEND_FLAGS="-include /nonexistent.h" --
fi
exit $((failures > 0))
