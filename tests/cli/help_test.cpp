// What --help says, compared with tests/cli/golden. After a wanted change: write what `tilewire VERB
// --help` prints into golden/VERB.txt, and read it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

// Versions of CLI11 differ in white space, in capitals, and in where "Usage:" stands.
std::string normalized(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t usage = text.find("usage:");
  return usage == std::string::npos ? text : text.erase(usage, 6);
}

// "sim t3": sim_t3
std::string file_name(std::string verb) {
  std::ranges::replace(verb, ' ', '_');
  return verb;
}

class Help : public ::testing::TestWithParam<const char*> {};

TEST_P(Help, IsGolden) {
  const std::string verb = GetParam();
  const Outcome outcome = run_tilewire(verb == "tilewire" ? "--help" : verb + " --help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  const std::string golden = read_text(std::string(TILEWIRE_GOLDEN) + "/" + file_name(verb) + ".txt");
  ASSERT_FALSE(golden.empty());
  EXPECT_EQ(normalized(outcome.out), normalized(golden)) << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Verbs, Help,
                         ::testing::Values("tilewire", "demo", "report", "bench", "run", "plan", "check", "info",
                                           "doctor", "sim", "sim t3", "sim claims"),
                         [](const auto& verb) { return file_name(verb.param); });

}  // namespace
}  // namespace tilewire::testing
