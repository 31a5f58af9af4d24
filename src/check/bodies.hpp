// The checker's rules for each compute body: rules of its operands, and the symbolic result.
// Called by structure.cpp and coverage.cpp.
#pragma once

#include <string>
#include <vector>

#include "check/product.hpp"

namespace tilewire::checking {

struct BodyProof {
  Body body = Body::gemm;
  /// The rules that a task breaks, as clauses that follow the task's name.
  std::vector<std::string> (*broken)(const Plan& plan, const Task& task) = nullptr;
  /// The symbolic result, given the symbolic reads, which it may change. Throws Error(refused_plan) with a clause that
  /// follows the task's name.
  std::vector<Patch> (*meaning)(Values& values, const Task& task, std::vector<Operand>& reads) = nullptr;
};

/// The row of a body.
[[nodiscard]] const BodyProof& proof_of(Body body);

}  // namespace tilewire::checking
