# The commit at which this was configured, for results: kCommit in generated/commit.hpp. A new commit configures again.
find_package(Git QUIET)
set(TILEWIRE_COMMIT unknown)
if(Git_FOUND)
  set(ask COMMAND ${GIT_EXECUTABLE} -C ${PROJECT_SOURCE_DIR})
  set(answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET OUTPUT_VARIABLE)
  execute_process(${ask} rev-parse --show-toplevel ${answer} top)
  # NOTE: sources without a repository of their own may lie in another one.
  if(top STREQUAL PROJECT_SOURCE_DIR)
    execute_process(${ask} describe --always --dirty --abbrev=12 ${answer} TILEWIRE_COMMIT)
    execute_process(${ask} rev-parse --path-format=absolute --git-path logs/HEAD ${answer} log)
    if(EXISTS "${log}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${log})
    endif()
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
