# What a build's program and CUDA library must have in common. The library computes the numbers that the program stores under
# its own numerics version, and a Backend crosses the boundary as a C++ object: so every source that gives results or lies
# at the boundary, the compiler, and Abseil, whose types are in the interface. Not nvcc: a program may be built without.

# ablate_interface_sources(OUT ROOT): found, not listed, so that none is forgotten.
function(ablate_interface_sources out root)
  file(GLOB_RECURSE found ${ARGN} "${root}/kernels/cuda/*.cu" "${root}/kernels/cuda/*.h" "${root}/kernels/cuda/*.cc")
  list(FILTER found EXCLUDE REGEX "/kernels/cuda/emulator/|/emulated_|_?test(ing)?\\.[a-z]+$")
  foreach(source cmake/ablate_cuda.cmake kernels/backend.h kernels/attention/score.h kernels/attention/variants.h kernels/attention/variants.cc base/version.h)
    list(APPEND found "${root}/${source}")
  endforeach()
  list(SORT found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# ablate_interface_hash(OUT ROOT WORDS...): 12 digits.
function(ablate_interface_hash out root)
  ablate_interface_sources(sources "${root}")
  set(all "${ARGN}")
  foreach(source IN LISTS sources)
    file(SHA256 "${source}" hash)
    string(APPEND all " ${hash}")
  endforeach()
  string(SHA256 hash "${all}")
  string(SUBSTRING "${hash}" 0 12 hash)
  set(${out} "${hash}" PARENT_SCOPE)
endfunction()
