// What the programs made of verbs have in common: parsing, and what an Error means for the exit code.
// Used by main.cpp, and by that of studies/.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewire::cli {

/// Find out which verb of `app` is meant, and call it. Returns the exit code; what failed is said on standard error.
[[nodiscard]] int run_command_line(CLI::App& app, int argc, char** argv);

}  // namespace tilewire::cli
