# All third-party packages, from the distribution. Protobuf must be found in
# module mode first: Debian ships no protobuf-config.cmake.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(glog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(Boost REQUIRED)
find_package(PNG REQUIRED)
find_package(OpenMP REQUIRED)
find_package(ZLIB REQUIRED)
find_package(GTest CONFIG REQUIRED)

# cpp-httplib as Debian splits it: its header must be read with the macros that its library was built with.
find_package(PkgConfig REQUIRED)
pkg_check_modules(ABLATE_HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
add_library(ablate_httplib INTERFACE)
target_link_libraries(ablate_httplib INTERFACE PkgConfig::ABLATE_HTTPLIB)

find_path(ABLATE_PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(ABLATE_PCRE2_LIBRARY NAMES pcre2-8 REQUIRED)
add_library(ablate_pcre2 INTERFACE)
target_include_directories(ablate_pcre2 SYSTEM INTERFACE "${ABLATE_PCRE2_INCLUDE}")
target_link_libraries(ablate_pcre2 INTERFACE "${ABLATE_PCRE2_LIBRARY}")

# OpenBLAS: the OpenMP build, by its own folder, because it can be told to stay
# on the calling thread, thread by thread (kernels/cpu/ops/linear.cc; no other
# use of OpenMP starts a thread). Debian's alternatives choose the pthread build;
# the static archive also keeps the choice out of the run-time linker's hands.
find_path(ABLATE_OPENBLAS_INCLUDE cblas.h
  HINTS /usr/include/x86_64-linux-gnu/openblas-openmp /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp
  NO_DEFAULT_PATH REQUIRED)
find_library(ABLATE_OPENBLAS_LIBRARY NAMES libopenblas.a openblas
  HINTS /usr/lib/x86_64-linux-gnu/openblas-openmp /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp
  NO_DEFAULT_PATH REQUIRED)
add_library(ablate_openblas INTERFACE)
target_include_directories(ablate_openblas SYSTEM INTERFACE "${ABLATE_OPENBLAS_INCLUDE}")
target_link_libraries(ablate_openblas INTERFACE "${ABLATE_OPENBLAS_LIBRARY}" gfortran OpenMP::OpenMP_CXX Threads::Threads m)
