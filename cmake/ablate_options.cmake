# Language, warnings, sanitizers and where programs land.
option(ABLATE_WERROR "Treat warnings in our own code as errors" ON)
set(ABLATE_SANITIZE "" CACHE STRING "Sanitizers for the whole build: address,undefined or thread")
option(ABLATE_FUZZ "Coverage for libFuzzer in the whole build, and the programs of tests/fuzz (needs clang)" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# Built for a fixed instruction set, not for the build machine: the same bits
# on every x86-64-v3 node (AVX2, FMA), wherever the binary was built.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-march=x86-64-v3>)  # nvcc passes it on (ablate_cuda.cmake)
endif()

find_program(ABLATE_CCACHE ccache)
if(ABLATE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ABLATE_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${ABLATE_CCACHE}")
endif()

if(ABLATE_SANITIZE)
  add_compile_options(-fsanitize=${ABLATE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ABLATE_SANITIZE})
endif()
if(ABLATE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ABLATE_FUZZ needs clang with its run-time library: use the preset fuzz (docs/contributing.md)")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=undefined)
endif()
