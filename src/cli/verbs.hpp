// The verbs of the command line. Each function adds a verb with its flags and its action.
// Called by main.
#pragma once

#include <CLI/CLI.hpp>

namespace tilewire::cli {

void add_demo(CLI::App& app);
void add_bench(CLI::App& app);
void add_run(CLI::App& app);
void add_plan(CLI::App& app);
void add_check(CLI::App& app);
void add_info(CLI::App& app);
void add_doctor(CLI::App& app);
void add_sim(CLI::App& app);
void add_report(CLI::App& app);

}  // namespace tilewire::cli
