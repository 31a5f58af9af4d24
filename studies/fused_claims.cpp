// The paper on fused computation-collective operations: tilewire has none of its operators yet.
// Called by claim_points.cpp and tests.
#include "studies/claim_points.hpp"

namespace tilewire::cli {

// NOTE: a GEMM + all-reduce of one row is no GEMV: the cost of a tile of one row was never measured, and the paper
// gives only the number of columns of its shapes.
PaperClaims fused_claims(const ClaimTimes&) {
  const char* const embedding = "there is no operator for embeddings and their all-to-all";
  const char* const gemv = "there is no GEMV";
  const char* const all_to_all = "the sizes of the GEMM and its all-to-all are not given";
  return {.paper = "fused_collectives",
          .title = "Fused computation-collective operations",
          .not_covered = {
              {"QA01", "all three operators: as QA08, QA10 and QA12"},
              {"QA02", "as QA14, QA10 and QA12"},
              {"QA03", "cited"},
              {"QA04", "cited"},
              {"QA05", "cited"},
              {"QA06", "occupancy of a kernel, which no machine here describes"},
              {"QA07", "how many kernels a split would launch: a count"},
              {"QA08", embedding},
              {"QA09", embedding},
              {"QA10", gemv},
              {"QA11", gemv},
              {"QA12", all_to_all},
              {"QA13", embedding},
              {"QA14", embedding},
              {"QA15", embedding},
              {"QA16", "occupancy of a kernel, which no machine here describes"},
              {"QA17", "occupancy of a kernel, which no machine here describes"},
              {"QA18", embedding},
              {"QA19", embedding},
              {"QA20", "as QA10 and QA12"},
              {"QA21", "how it was measured: nothing to simulate"},
              {"QA22", "cited"},
          }};
}

}  // namespace tilewire::cli
