// Runs the command line from a test.
// Called by the tests in this folder and in tests/studies.
#include "cli/command.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tilewire::testing {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string fresh_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string("tilewire_") + test->test_suite_name() + "_" + test->name();
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / (name + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

namespace {

// `out`: a file for standard output, if given.
Outcome run(const std::string& program, const std::string& args, const std::string& environment,
            const std::string& out) {
  const std::string prefix = ::testing::TempDir() + "/tilewire_out" + std::to_string(::getpid());
  const std::string command = "env " + environment + " " + program + " " + args + " >" +
                              (out.empty() ? prefix + ".out" : out) + " 2>" + prefix + ".err </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(prefix + ".out"),
                  read_text(prefix + ".err")};
  std::filesystem::remove(prefix + ".out");
  std::filesystem::remove(prefix + ".err");
  return outcome;
}

}  // namespace

Outcome run_program(const std::string& program, const std::string& args) { return run(program, args, "", ""); }

Outcome run_tilewire(const std::string& args, const std::string& environment) {
  return run(TILEWIRE_COMMAND, args, environment, "");
}

Outcome run_tilewire_on_full_device(const std::string& args) { return run(TILEWIRE_COMMAND, args, "", "/dev/full"); }

}  // namespace tilewire::testing
