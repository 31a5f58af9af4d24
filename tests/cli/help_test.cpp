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

INSTANTIATE_TEST_SUITE_P(Verbs, Help,
                         ::testing::Values("tilewire", "demo", "bench", "run", "plan", "check", "info", "doctor", "sim",
                                           "report"),
                         [](const auto& verb) { return std::string(verb.param); });

}  // namespace
}  // namespace tilewire::testing
