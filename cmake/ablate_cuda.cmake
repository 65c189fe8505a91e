# CUDA sources, each listed once and compiled by two compilers:
#   the host's   always: for tests, on the emulator (kernels/cuda/emulator), also with sanitizers
#   nvcc         where the toolkit (12.0 or later) is found: into libablate_cuda.so, which the trainer opens at run time
#
#   ablate_cuda_sources(ops KERNELS gelu.cu HOST launch.cc HDRS gelu.h DEPS ...)
#     -> ablate_cuda_ops_emulated (and _asan, _tsan), and its objects in ablate_cuda. CHECK_ONLY: nvcc compiles them, no more.
#   ablate_cuda_test(gelu_test SRCS gelu_test.cc PARTS ops DEPS ... [SANITIZED_ARGS --gtest_filter=...])
#     -> ctest kernels.cuda.gelu, kernels.cuda.gelu.asan, kernels.cuda.gelu.tsan
include(ablate_cuda_toolkit)
option(ABLATE_CUDA_LINE_INFO "Line numbers in device code, for compute-sanitizer: four times the library's size" OFF)

if(ABLATE_WITH_CUDA)
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
  # CMake 3.25.1 does not know nvcc's switch for C++20; setting the standard before enable_language breaks its own tests.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
  # What ptxas says of registers and spills goes to OBJECT.ptxas (scripts/kernel_resources.py reads it), not to the screen.
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_SOURCE_DIR}/cmake/record_ptxas.sh" ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# --- sanitizers: ordinary targets of this build, so that no second tree is needed ---
set(ABLATE_EMULATED_FLAVOURS "")
if(NOT ABLATE_SANITIZE)
  set(ABLATE_EMULATED_FLAVOURS asan tsan)
endif()
set(ABLATE_FLAGS_asan -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined -w)
set(ABLATE_FLAGS_tsan -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread -w)
set(ABLATE_LINK_asan -fsanitize=address,undefined)
set(ABLATE_LINK_tsan -fsanitize=thread)

# ABLATE_RUN_<flavour>: what to put before a program so that it runs here, or NO. ThreadSanitizer's runtime dislikes a
# wide randomisation of addresses (vm.mmap_rnd_bits), which setarch -R turns off where it is allowed.
foreach(flavour IN LISTS ABLATE_EMULATED_FLAVOURS)
  if(NOT DEFINED CACHE{ABLATE_RUN_${flavour}})
    set(run NO)
    set(probe "${CMAKE_BINARY_DIR}/sanitizer_probe_${flavour}")
    file(WRITE "${probe}.cc" "int main(int argc, char**) { return argc - 1; }\n")
    try_compile(compiled "${probe}_build" "${probe}.cc" COPY_FILE "${probe}"
      COMPILE_DEFINITIONS ${ABLATE_LINK_${flavour}} LINK_OPTIONS ${ABLATE_LINK_${flavour}})
    if(compiled)
      find_program(ABLATE_SETARCH setarch)
      foreach(wrapper "env" "${ABLATE_SETARCH};${CMAKE_HOST_SYSTEM_PROCESSOR};-R")
        set(worst 0)
        foreach(attempt RANGE 4)  # addresses are random: once is not enough
          execute_process(COMMAND ${wrapper} "${probe}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
          if(NOT code EQUAL 0)
            set(worst 1)
          endif()
        endforeach()
        if(worst EQUAL 0 AND (run STREQUAL "NO" OR flavour STREQUAL "tsan"))
          set(run "${wrapper}")  # the later, setarch, is the safer one for tsan
        endif()
      endforeach()
    endif()
    set(ABLATE_RUN_${flavour} "${run}" CACHE INTERNAL "How programs with this sanitizer run here")
  endif()
endforeach()

# The flags of one flavour, "" being the plain one. Warnings are the plain one's task.
function(ablate_emulated_flags target flavour)
  if(flavour)
    target_compile_options(${target} PRIVATE ${ABLATE_FLAGS_${flavour}})
    target_link_options(${target} PUBLIC ${ABLATE_LINK_${flavour}})
  else()
    target_link_libraries(${target} PRIVATE ablate_warnings)
    target_compile_options(${target} PRIVATE -Wno-unknown-pragmas)  # unroll
  endif()
endfunction()

function(ablate_cuda_sources name)
  cmake_parse_arguments(arg "CHECK_ONLY" "" "KERNELS;HOST;HDRS;DEPS" ${ARGN})
  # A source has one language in a folder, so the host compiler gets a file that includes it.
  set(wrapped "")
  foreach(kernel IN LISTS arg_KERNELS)
    file(RELATIVE_PATH path "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/${kernel}")
    set(wrapper "${CMAKE_CURRENT_BINARY_DIR}/${kernel}.emulated.cc")
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${path}\"\n" @ONLY)
    list(APPEND wrapped "${wrapper}")
  endforeach()
  foreach(flavour IN LISTS ABLATE_EMULATED_FLAVOURS ITEMS "")
    set(suffix "")
    if(flavour)
      set(suffix "_${flavour}")
    endif()
    set(target ablate_cuda_${name}_emulated${suffix})
    add_library(${target} STATIC ${wrapped} ${arg_HOST} ${arg_HDRS})
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${target} PUBLIC ${arg_DEPS} ablate_cuda_emulator${suffix})
    ablate_emulated_flags(${target} "${flavour}")
  endforeach()

  if(ABLATE_WITH_CUDA)
    set(target ablate_cuda_${name}_device)
    add_library(${target} OBJECT ${arg_KERNELS} ${arg_HOST} ${arg_HDRS})
    target_include_directories(${target} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_include_directories(${target} SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
    target_compile_definitions(${target} PRIVATE ABLATE_CUDA_TOOLKIT)
    target_link_libraries(${target} PUBLIC ${arg_DEPS})
    # Hidden, so that a program that also holds the emulated twins keeps them apart.
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
      VISIBILITY_INLINES_HIDDEN ON)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:$<TARGET_PROPERTY:ablate_warnings,INTERFACE_COMPILE_OPTIONS>>"
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings --expt-relaxed-constexpr $<$<BOOL:${ABLATE_CUDA_LINE_INFO}>:-lineinfo> -Xptxas -v -Xcompiler=-Wall,-Wextra,-Werror,-Wno-missing-field-initializers,-march=x86-64-v3>")
    if(arg_KERNELS AND NOT arg_CHECK_ONLY)
      set_property(GLOBAL APPEND PROPERTY ABLATE_CUDA_OBJECTS $<TARGET_OBJECTS:${target}>)
    endif()
    if(NOT arg_CHECK_ONLY)
      target_link_libraries(ablate_cuda PRIVATE ${target} ${arg_DEPS})
      target_sources(ablate_cuda PRIVATE $<TARGET_OBJECTS:${target}>)
    endif()
  endif()
endfunction()

function(ablate_cuda_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;PARTS;DEPS;SANITIZED_ARGS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  string(REGEX REPLACE "_test$" "" short "${name}")
  foreach(flavour IN LISTS ABLATE_EMULATED_FLAVOURS ITEMS "")
    set(suffix "")
    set(ctest_name "kernels.cuda.${short}")
    if(flavour)
      set(suffix "_${flavour}")
      set(ctest_name "${ctest_name}.${flavour}")
    endif()
    set(target test_kernels_cuda_${short}${suffix})
    if(flavour AND ABLATE_RUN_${flavour} STREQUAL "NO")
      ablate_skipped_test("${ctest_name}" "${flavour}")
      continue()
    endif()
    set(parts ablate_cuda_emulator${suffix})
    foreach(part IN LISTS arg_PARTS)
      list(APPEND parts ablate_cuda_${part}_emulated${suffix})
    endforeach()
    add_executable(${target} ${arg_SRCS})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    target_link_libraries(${target} PRIVATE ${parts} ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
    ablate_emulated_flags(${target} "${flavour}")
    if(flavour)
      add_test(NAME ${ctest_name} COMMAND ${ABLATE_RUN_${flavour}} $<TARGET_FILE:${target}> ${arg_SANITIZED_ARGS})
    else()
      add_test(NAME ${ctest_name} COMMAND ${target})
    endif()
    set_tests_properties(${ctest_name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "cuda")
  endforeach()
endfunction()

# Counted and named by ctest, not left out in silence.
function(ablate_skipped_test ctest_name flavour)
  add_test(NAME ${ctest_name} COMMAND "${CMAKE_COMMAND}" -E echo
    "SKIPPED: programs built with the ${flavour} sanitizer do not run on this machine (tried plainly and under setarch -R)")
  set_tests_properties(${ctest_name} PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED:" LABELS "cuda")
endfunction()
