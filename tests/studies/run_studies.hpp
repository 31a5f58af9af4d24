// Runs tilewire-studies from a test.
// Used by the tests in this folder.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace tilewire::testing {

/// Run `tilewire-studies ARGS` in a shell.
inline Outcome run_studies(const std::string& args) { return run_program(TILEWIRE_STUDIES, args); }

}  // namespace tilewire::testing
