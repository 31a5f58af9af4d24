// What the checker knows of each compute body: the rules of its operands, and what its result stands for.
// Called by structure.cpp and coverage.cpp.
#pragma once

#include <string>
#include <vector>

#include "check/product.hpp"

namespace tilewire::checking {

struct BodyProof {
  Body body = Body::gemm;
  /// The rules that a task breaks: clauses that follow its name.
  std::vector<std::string> (*broken)(const Plan& plan, const Task& task) = nullptr;
  /// What its result stands for, by its operands. Throws Error(refused_plan) with a clause that follows its name.
  std::vector<Patch> (*meaning)(Values& values, const Task& task, const Operand& first,
                                const Operand& second) = nullptr;
};

/// The row of a body.
[[nodiscard]] const BodyProof& proof_of(Body body);

}  // namespace tilewire::checking
