# What build.cmake says when npm fails, with an npm that is made up: that PATH need not lead to node, and that a network is advised only
# where one was missing.
cmake_minimum_required(VERSION 3.25)
if(MISSING)
  message("SKIPPED: the dashboard is not built on this machine: ${MISSING}")
  return()
endif()
file(REMOVE_RECURSE "${BINARY}/build_test")
set(npm "${BINARY}/build_test/npm")
file(WRITE "${npm}" "#!/usr/bin/env node\nconsole.error(process.env.SAY); process.exit(3);\n")
file(CHMOD "${npm}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

function(check say wanted unwanted)
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env PATH=/nonexistent "SAY=${say}" "${CMAKE_COMMAND}" "-DSOURCE=${SOURCE}"
      "-DBINARY=${BINARY}/build_test" "-DNODE=${NODE}" "-DNPM=${npm}" -DMISSING= -DSTEP=build -P "${SOURCE}/build.cmake"
    RESULT_VARIABLE code ERROR_VARIABLE said)
  string(FIND "${said}" "(${say})" at)
  if(NOT code EQUAL 0 OR at EQUAL -1 OR NOT said MATCHES "${wanted}" OR said MATCHES "${unwanted}")
    message(FATAL_ERROR "of '${say}' it ended with ${code} and said: ${said}")
  endif()
endfunction()

check("npm error code EAI_AGAIN" "where there is a network" "says all of it")
check("npm error EACCES: permission denied, mkdir" "says all of it" "network")
file(REMOVE_RECURSE "${BINARY}/build_test")
