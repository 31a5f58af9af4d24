// A table of the features of plans that a backend can execute. It refuses a plan with any other feature.
// Each backend fills it in for Group::unsupported.
#pragma once

#include <string>
#include <vector>

#include "tilewire/plan.hpp"

namespace tilewire {

/// An empty list means that the backend knows no such feature. The checker and `validate` check shapes and numbers of
/// operands.
struct Known {
  std::vector<TaskKind> kinds;
  std::vector<Body> bodies;             ///< of `compute` and `gemm_call`
  std::vector<Collective> collectives;  ///< of `collective_call`
  std::vector<EpilogueKind> epilogue;
  std::vector<Engine> engines;
  std::vector<Via> vias;
  std::vector<BLayout> b_layouts;
  std::vector<DType> numbers;  ///< of operands and results of products, sums and fills
  std::vector<DType> normed;   ///< further types of results of norms
  std::vector<DType> moved;    ///< of copies
  std::vector<DType> added;    ///< of WriteMode::accumulate
  int cluster = 1;             ///< most CTAs that share loads
  int cluster_split_k = 1;     ///< most CTAs that make one tile
  bool kernels = false;        ///< several kernels of a call
  bool ll = false;             ///< Buffer::ll
};

/// The parts of a plan that are not in the table, by name, sorted: "body = pool", "transport = tma".
[[nodiscard]] std::vector<std::string> unknown_parts(const Known& known, const Plan& plan);

}  // namespace tilewire
