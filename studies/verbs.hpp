// The verbs of tilewire-studies. Each function adds a verb with its flags and its action.
// Called by main.cpp.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewire::cli {

void add_t3(CLI::App& app);
void add_claims(CLI::App& app);
void add_sweep(CLI::App& app);
void add_chakra(CLI::App& app);

}  // namespace tilewire::cli
