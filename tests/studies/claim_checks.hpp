// Compares figures of claims with hand-computed figures.
// Used by t3_study_test.cpp and claims_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "studies/claims.hpp"

namespace tilewire::cli {

/// Our figures for one claim, in the order of the table.
inline std::vector<double> ours(const std::vector<ClaimResult>& results, const std::string& id) {
  std::vector<double> values;
  for (const ClaimResult& result : results) {
    if (result.id == id) values.push_back(result.ours);
  }
  return values;
}

inline void expect_claim(const std::vector<ClaimResult>& results, const std::string& id,
                         const std::vector<double>& expected) {
  const std::vector<double> values = ours(results, id);
  ASSERT_EQ(values.size(), expected.size()) << id;
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 0.005) << id << ", figure " << i;
}

/// Claims `prefix`01 to `prefix``last` each have an answer, or a reason for none. No figure is there twice; every
/// letter has its assumption, and every assumption a figure.
inline void expect_all_answered(const PaperClaims& paper, const std::string& prefix, int last) {
  std::set<std::string> expected;
  for (int i = 1; i <= last; ++i) expected.insert(prefix + (i < 10 ? "0" : "") + std::to_string(i));
  std::set<std::string> ids;
  std::set<std::string> figures;
  std::string used;
  std::string letters;
  for (const ClaimAssumption& each : paper.assumptions) letters += each.letter;
  for (const ClaimResult& claim : paper.claims) {
    ids.insert(claim.id);
    used += claim.assumed;
    EXPECT_TRUE(figures.insert(claim.id + claim.text).second) << claim.id << ", twice: " << claim.text;
    EXPECT_EQ(claim.assumed.find_first_not_of(letters), std::string::npos) << claim.id << " " << claim.assumed;
  }
  EXPECT_EQ(letters.find_first_not_of(used), std::string::npos) << letters << ", used: " << used;
  std::set<std::string> reasons;
  for (const NotCovered& claim : paper.not_covered) {
    ids.insert(claim.id);
    EXPECT_TRUE(reasons.insert(claim.id).second) << claim.id << " is not covered twice";
    EXPECT_FALSE(claim.reason.empty()) << claim.id;
  }
  EXPECT_EQ(ids, expected);
}

}  // namespace tilewire::cli
