# Puts the files of a folder into a library, for what a server must always have at hand.
#
#   ablate_embed_files(ablate_dashboard_files FUNCTION DashboardFiles FOLDER dir STAMP file DEPENDS target)
#     -> library with `std::span<const ablate::EmbeddedFile> ablate::DashboardFiles()`, declared by whoever calls it
#        (base/embedded_file.h); by path, ascending; empty while the folder is
#
# The folder's files are found at build time, whenever STAMP is newer: a bundler names them by their content. Text is kept
# gzipped. A line of assembly takes the bytes in as they are, since a compiler is slow with arrays of them.
function(ablate_embed_files name)
  cmake_parse_arguments(arg "" "FUNCTION;FOLDER;STAMP" "DEPENDS" ${ARGN})
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  add_custom_command(OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" "-DFOLDER=${arg_FOLDER}" "-DOUTPUT=${source}" "-DFUNCTION=${arg_FUNCTION}"
      -P "${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake"
    DEPENDS "${arg_STAMP}" "${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake" ${arg_DEPENDS}
    COMMENT "Embedding ${arg_FUNCTION}" VERBATIM)
  ablate_library(${name} SRCS "${source}" DEPS ablate_base)
endfunction()
