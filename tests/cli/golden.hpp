// Compares --help with a file. After a wanted change: write the program's output to the file, and read it.
// Used by the help_test.cpp of this folder and of tests/studies.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "cli/command.hpp"

namespace tilewire::testing {

// Versions of CLI11 differ in white space, in capitals, and in the place of "Usage:".
inline std::string normalized(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t usage = text.find("usage:");
  return usage == std::string::npos ? text : text.erase(usage, 6);
}

/// `help` equals the golden file of that name.
inline void expect_golden(const Outcome& help, const std::string& name) {
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  const std::string golden = read_text(std::string(TILEWIRE_GOLDEN) + "/" + name + ".txt");
  ASSERT_FALSE(golden.empty());
  EXPECT_EQ(normalized(help.out), normalized(golden)) << help.out;
}

}  // namespace tilewire::testing
