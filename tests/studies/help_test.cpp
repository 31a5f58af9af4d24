// The --help of tilewire-studies and of its verbs (tests/studies/golden), and its error without a verb.
// Built as part of the target `studies_test`.
#include "cli/golden.hpp"
#include "studies/run_studies.hpp"

namespace tilewire::testing {
namespace {

class StudiesHelp : public ::testing::TestWithParam<const char*> {};

TEST_P(StudiesHelp, IsGolden) {
  const std::string verb = GetParam();
  expect_golden(run_studies(verb == "studies" ? "--help" : verb + " --help"), verb);
}

INSTANTIATE_TEST_SUITE_P(Verbs, StudiesHelp, ::testing::Values("studies", "t3", "claims", "sweep", "chakra"),
                         [](const auto& verb) { return std::string(verb.param); });

TEST(StudiesHelp, AnUnknownVerbIsRefused) {
  const Outcome outcome = run_studies("sim --help");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "tilewire-studies: unknown verb 'sim'; known: t3, claims, sweep, chakra\n");
}

}  // namespace
}  // namespace tilewire::testing
