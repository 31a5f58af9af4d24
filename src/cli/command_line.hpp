// The common part of programs with verbs: parsing, and the exit code of an Error.
// Used by main.cpp, and by the main.cpp of studies/.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewire::cli {

/// Find the verb of `app` among the arguments, and call it. Returns the exit code; an Error goes to standard error.
[[nodiscard]] int run_command_line(CLI::App& app, int argc, char** argv);

}  // namespace tilewire::cli
