# How a library, a program and a test of ours are declared.
#
#   ablate_library(ablate_base_files SRCS files.cc HDRS files.h DEPS absl::status)
#   ablate_program(ablate-server SRCS main.cc DEPS ...)
#   ablate_test(files_test SRCS files_test.cc DEPS ablate_base)   -> ctest "base.files"
include(GoogleTest)

add_library(ablate_warnings INTERFACE)
target_compile_options(ablate_warnings INTERFACE -Wall -Wextra -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>  # g++ 12 misfires on "text" + std::string (GCC bug 105651)
  $<$<BOOL:${ABLATE_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)

function(ablate_library name)
  cmake_parse_arguments(arg "" "" "SRCS;HDRS;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(${name} STATIC ${arg_SRCS} ${arg_HDRS})
    target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS} ablate_warnings)
  else()
    add_library(${name} INTERFACE ${arg_HDRS})
    target_include_directories(${name} INTERFACE "${CMAKE_SOURCE_DIR}")
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
  endif()
endfunction()

function(ablate_program name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} ablate_warnings)
endfunction()

# What ThreadSanitizer can judge: tests labelled tsan, which link neither gRPC nor OpenMP. A target of their own, so that
# scripts/test.sh --full builds no more than it runs.
add_custom_target(tsan_tests)

# One ctest entry a test program, named by its path with dots: base/files_test.cc -> base.files.
function(ablate_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SRCS;DEPS;ARGS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  file(RELATIVE_PATH room "${CMAKE_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  string(REPLACE "/" "." dotted "${room}")
  string(REGEX REPLACE "_test$" "" short "${name}")
  set(target "${dotted}.${short}")
  string(REPLACE "." "_" target "test_${target}")
  add_executable(${target} ${arg_SRCS})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE ${arg_DEPS} GTest::gmock GTest::gtest GTest::gtest_main ablate_warnings)
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_tests ${target})
  endif()
  add_test(NAME "${dotted}.${short}" COMMAND ${target} ${arg_ARGS})
  set_tests_properties("${dotted}.${short}" PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()
