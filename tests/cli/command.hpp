// Runs the command line from a test.
// Used by the tests in this folder and in tests/studies.
#pragma once

#include <string>

namespace tilewire::testing {

struct Outcome {
  int code = 0;     ///< exit status; 128 + signal where one ended it
  std::string out;  ///< standard output
  std::string err;  ///< standard error
};

/// Run `PROGRAM ARGS` in a shell.
Outcome run_program(const std::string& program, const std::string& args);
/// Run `tilewire ARGS` in a shell, with `environment` ("NAME=value ...") before it.
Outcome run_tilewire(const std::string& args, const std::string& environment = "");
/// The same with standard output on a full device.
Outcome run_tilewire_on_full_device(const std::string& args);

/// An empty folder for this test alone.
std::string fresh_folder();

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace tilewire::testing
