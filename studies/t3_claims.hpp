// T3's figures and simulated ones.
// Used by claims_verb.cpp and tests.
#pragma once

#include "studies/claims.hpp"
#include "studies/t3_results.hpp"

namespace tilewire::cli {

/// The paper's figures beside those of a study.
[[nodiscard]] PaperClaims t3_claims(const T3Study& study);

}  // namespace tilewire::cli
