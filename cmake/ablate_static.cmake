# ABLATE_STATIC: programs that need nothing of the distribution but its C library, for machines where nothing can be
# installed (scripts/gpu_check.sh). The distribution's packages name shared libraries; their archives lie beside them.
# Not for libablate_cuda.so, which is loaded: archives that are not position-independent cannot be part of it, and cuBLAS
# and the driver must be the machine's own. It is taken from the release build, with the libraries that it names.
option(ABLATE_STATIC "Link programs statically but for the C library" OFF)
if(NOT ABLATE_STATIC)
  return()
endif()

# x.so -> x.a beside it; empty where there is none.
function(ablate_archive_of library result)
  set(archive "")
  if(library MATCHES "^(-l)?re2$")  # as pkg-config names it
    find_library(ABLATE_ARCHIVE_re2 NAMES libre2.a REQUIRED)
    set(archive "${ABLATE_ARCHIVE_re2}")
  elseif(library MATCHES "\\.so(\\.[0-9.]+)?$")
    string(REGEX REPLACE "\\.so(\\.[0-9.]+)?$" ".a" candidate "${library}")
    if(EXISTS "${candidate}")
      set(archive "${candidate}")
    endif()
  endif()
  set(${result} "${archive}" PARENT_SCOPE)
endfunction()

get_property(imported DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS imported)
  if(target MATCHES "^CUDA::")
    continue()
  endif()
  get_target_property(needed ${target} INTERFACE_LINK_LIBRARIES)
  if(needed)
    set(mapped "")
    foreach(library IN LISTS needed)
      ablate_archive_of("${library}" archive)
      if(archive)
        list(APPEND mapped "${archive}")
      else()
        list(APPEND mapped "${library}")
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${mapped}")
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE" OR type STREQUAL "INTERFACE_LIBRARY")
    continue()
  endif()
  foreach(configuration "" _NONE _RELEASE _RELWITHDEBINFO _DEBUG _NOCONFIG)
    get_target_property(location ${target} IMPORTED_LOCATION${configuration})
    if(location)
      ablate_archive_of("${location}" archive)
      if(archive)
        set_target_properties(${target} PROPERTIES IMPORTED_LOCATION${configuration} "${archive}")
      endif()
    endif()
  endforeach()
endforeach()

# What an archive needs and its shared twin had inside.
function(ablate_also_link target)
  if(TARGET ${target})
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${ARGN})
  endif()
endfunction()
foreach(name gflags cares re2 z ssl crypto address_sorting upb)
  find_library(ABLATE_ARCHIVE_${name} NAMES lib${name}.a REQUIRED)
endforeach()
# libunwind's archive is not position-independent and fights the compiler's: that one stays shared, found beside the
# program, with the liblzma that it loads.
find_library(ABLATE_UNWIND NAMES libunwind.so REQUIRED)
ablate_also_link(glog::glog "${ABLATE_ARCHIVE_gflags}" "${ABLATE_UNWIND}")
list(APPEND CMAKE_BUILD_RPATH "$ORIGIN")
ablate_also_link(gRPC::grpc "${ABLATE_ARCHIVE_address_sorting}" "${ABLATE_ARCHIVE_upb}" "${ABLATE_ARCHIVE_re2}"
  "${ABLATE_ARCHIVE_cares}" "${ABLATE_ARCHIVE_ssl}" "${ABLATE_ARCHIVE_crypto}" "${ABLATE_ARCHIVE_z}")
ablate_also_link(OpenSSL::Crypto ${CMAKE_DL_LIBS})

# OpenMP and Fortran come with the compiler, which knows where their archives are.
foreach(name gomp gfortran quadmath)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${name}.a OUTPUT_VARIABLE archive_${name}
    OUTPUT_STRIP_TRAILING_WHITESPACE)
endforeach()
set_target_properties(OpenMP::OpenMP_CXX PROPERTIES INTERFACE_LINK_LIBRARIES "${archive_gomp};Threads::Threads;${CMAKE_DL_LIBS}")
set_property(TARGET ablate_openblas PROPERTY INTERFACE_LINK_LIBRARIES
  "${ABLATE_OPENBLAS_LIBRARY};${archive_gfortran};${archive_quadmath};OpenMP::OpenMP_CXX;Threads::Threads;m")
add_link_options(-static-libstdc++ -static-libgcc)
