// Checks callers' tensors before a call, and arguments of copies.
// Called by programs and groups.
#pragma once

#include <cstddef>
#include <span>

#include "backends/reachable_memory.hpp"
#include "core/in_place.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/tensor.hpp"

namespace tilewire {

/// Throw Error(invalid_input) unless the tensors of `rank` obey the rules of Op::run for the plan's buffers: number,
/// types, shapes, strides, alignment, position in `reachable` memory if peers address the buffer, and no output that
/// overlaps another tensor. The two tensors of a pair of `in_place` may be one.
void require_tensors(const Plan& plan, int rank, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const ReachableMemory& reachable, std::span<const InPlace> in_place);

/// Throw Error(invalid_input) for a negative number of bytes, or for bytes to or from a null pointer.
void require_copy(const void* to, const void* from, int64_t bytes);

/// Call `visit(buffer index, tensor)` for the callers' tensors in the order of the plan's buffers.
template <class Visit>
void for_each_tensor(const Plan& plan, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                     const Visit& visit) {
  size_t input = 0;
  size_t output = 0;
  for (int buffer = 0; buffer < std::ssize(plan.buffers); ++buffer) {
    if (plan.buffers[buffer].scope == Scope::input) visit(buffer, inputs[input++]);
    if (plan.buffers[buffer].scope == Scope::output) visit(buffer, outputs[output++]);
  }
}

}  // namespace tilewire
