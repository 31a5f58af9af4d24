# The commit at which this was configured, for results: kCommit in generated/commit.hpp. A new commit configures again.
find_package(Git QUIET)
set(TILEWIRE_COMMIT unknown)
if(Git_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --abbrev=12 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(described)
    set(TILEWIRE_COMMIT ${described})
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/.git/logs/HEAD)
  endif()
endif()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/commit.hpp CONTENT [[
#pragma once
namespace tilewire {
inline constexpr const char* kCommit = "@TILEWIRE_COMMIT@";
}
]] @ONLY)
add_library(tilewire_commit INTERFACE)
target_include_directories(tilewire_commit INTERFACE ${PROJECT_BINARY_DIR}/generated)
