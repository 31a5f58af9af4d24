// The --help of the command and of its verbs: tests/cli/golden.
// Built as part of the target `cli_test`.
#include "cli/golden.hpp"

namespace tilewire::testing {
namespace {

class Help : public ::testing::TestWithParam<const char*> {};

TEST_P(Help, IsGolden) {
  const std::string verb = GetParam();
  expect_golden(run_tilewire(verb == "tilewire" ? "--help" : verb + " --help"), verb);
}

TEST(Knobs, TheDocumentsHaveTheTable) {
  const std::string path = TILEWIRE_DOCS "/schedules.md";
  const Outcome outcome = run_tilewire("info --knobs");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(read_text(path).find(outcome.out), std::string::npos)
      << path << " has another table than tilewire info --knobs:\n"
      << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(Verbs, Help,
                         ::testing::Values("tilewire", "demo", "bench", "run", "plan", "check", "info", "doctor", "sim",
                                           "report"),
                         [](const auto& verb) { return std::string(verb.param); });

}  // namespace
}  // namespace tilewire::testing
