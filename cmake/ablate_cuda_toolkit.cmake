# Whether there is a CUDA toolkit that works: sets ABLATE_WITH_CUDA and enables the language, or says why not. A toolkit that
# is too old or broken never fails the configure unless ABLATE_CUDA=ON asks for it, so it is tried in a project of its own first.
set(ABLATE_CUDA AUTO CACHE STRING "AUTO: build the CUDA library where a toolkit is found; ON: fail without one; OFF")
set(ABLATE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "What nvcc compiles for")
if(NOT ABLATE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ABLATE_CUDA=${ABLATE_CUDA}: expected AUTO, ON or OFF")
endif()

set(ABLATE_WITH_CUDA FALSE)
set(why_no_cuda "")
if(ABLATE_CUDA STREQUAL "OFF")
  set(why_no_cuda "ABLATE_CUDA=OFF")
elseif(ABLATE_SANITIZE)
  set(why_no_cuda "not with ABLATE_SANITIZE")
else()
  # nvcc is often not on PATH (sudo, systemd, cron).
  find_program(ABLATE_NVCC nvcc PATHS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
  set(nvcc "${ABLATE_NVCC}")
  if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
  elseif(DEFINED ENV{CUDACXX})
    set(nvcc "$ENV{CUDACXX}")
  endif()
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${ABLATE_CUDA_ARCHITECTURES}")  # must stand before the language is enabled

  # What worked once is not tried again.
  set(trial "${nvcc}, ${CMAKE_CUDA_HOST_COMPILER}, ${ABLATE_CUDA_ARCHITECTURES}")
  if(NOT nvcc)
    set(why_no_cuda "no nvcc in PATH, CUDA_HOME, CUDA_PATH or /usr/local/cuda")
  elseif(NOT ABLATE_CUDA_TRIED STREQUAL trial)
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
      set(why_no_cuda "${nvcc} does not run: ${code}")
    elseif(said MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS 12.0)
      set(why_no_cuda "${nvcc} is of CUDA ${CMAKE_MATCH_1}, older than 12.0")
    else()
      set(folder "${CMAKE_BINARY_DIR}/cuda_trial")
      file(REMOVE_RECURSE "${folder}")
      file(WRITE "${folder}/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)\nproject(trial LANGUAGES CXX CUDA)\n"
        "find_package(CUDAToolkit)\n"
        "if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)\n"
        "  message(FATAL_ERROR \"error: CUDA \${CMAKE_CUDA_COMPILER_VERSION} is older than 12.0\")\nendif()\n"
        "if(NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt)\n"
        "  message(FATAL_ERROR \"error: the toolkit lacks libcudart_static or cuBLAS\")\nendif()\n")
      execute_process(
        COMMAND "${CMAKE_COMMAND}" -S "${folder}" -B "${folder}/build" -G "${CMAKE_GENERATOR}"
          "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
          "-DCMAKE_CUDA_COMPILER=${nvcc}" "-DCMAKE_CUDA_HOST_COMPILER=${CMAKE_CUDA_HOST_COMPILER}"
          "-DCMAKE_CUDA_ARCHITECTURES=${ABLATE_CUDA_ARCHITECTURES}" "-DCMAKE_CUDA_FLAGS=${CMAKE_CUDA_FLAGS}"
        OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE code)
      if(NOT code EQUAL 0)
        file(WRITE "${folder}/output.txt" "${said}")
        if(NOT said MATCHES "([^\n]*(error|fatal)[a-z ]*: [^\n]*)")  # the compiler's own words, else CMake's
          string(REGEX MATCH "CMake Error at[^\n]*[\n ]*([^\n]*)" first "${said}")
        endif()
        string(STRIP "${CMAKE_MATCH_1}" first)
        set(why_no_cuda "${nvcc} does not work: ${first} (${folder}/output.txt)")
      endif()
    endif()
  endif()

  if(NOT why_no_cuda)
    set(ABLATE_CUDA_TRIED "${trial}" CACHE INTERNAL "The toolkit that has been tried and works")
    set(CMAKE_CUDA_COMPILER "${nvcc}")
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(ABLATE_WITH_CUDA TRUE)
  elseif(ABLATE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ABLATE_CUDA=ON needs a CUDA toolkit of 12.0 or later with cuBLAS: ${why_no_cuda}")
  endif()
endif()
if(NOT ABLATE_WITH_CUDA)
  message(STATUS "CUDA: not built (${why_no_cuda}); its kernels are still tested on the host")
endif()
