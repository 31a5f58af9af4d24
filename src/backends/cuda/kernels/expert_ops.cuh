// The ops of mixture of experts.
// Used by workers.cu.
#pragma once

#include "backends/cuda/kernels/expert_rows.cuh"
#include "backends/cuda/kernels/route_op.cuh"

namespace tilewire::cuda {

/// For run_op, in CTAs of kExpertThreads threads with RoutingShared as dynamic shared memory.
struct ExpertOps {
  static __device__ void run(const WorkerTable& table, const OpRecord& step, const Slice& slice, Patience& patience) {
    switch (step.code) {
      case OpCode::route:
        return route_op(table, step, slice, patience);
      case OpCode::group_rows:
        return group_rows_op(table, step, slice);
      case OpCode::select:
        return select_op(table, step, slice);
      case OpCode::sum_experts:
        return sum_experts_op(table, step, slice);
      default:
        return;
    }
  }
};

}  // namespace tilewire::cuda
