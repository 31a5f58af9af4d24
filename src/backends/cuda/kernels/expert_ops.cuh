// The ops of mixture of experts.
// Used by workers.cu.
#pragma once

#include "backends/cuda/kernels/expert_rows.cuh"
#include "backends/cuda/kernels/ops.cuh"
#include "backends/cuda/kernels/route_op.cuh"

namespace tilewire::cuda {

/// For run_op, in CTAs of kExpertThreads threads with RoutingShared as dynamic shared memory. NOTE: each op is a
/// function of its own, as the registers of all together would not fit.
struct ExpertOps {
  static __device__ void run(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                             const Warpgroup& warpgroup, BulkRoom& room, Patience& patience) {
    switch (step.code) {
      case OpCode::route:
        return route_op(table, step, slice, patience);
      case OpCode::group_rows:
        return group_rows_op(table, step, slice);
      case OpCode::select:
        return select_op(table, step, slice);
      case OpCode::sum_experts:
        return sum_experts_op(table, step, slice, patience);
      case OpCode::reduce:
        if (sum_partials_op(table, step, slice)) return;
        break;
      default:
        break;
    }
    plain_op(table, step, slice, warpgroup, room, patience);
  }

 private:
  static __device__ __noinline__ void plain_op(const WorkerTable& table, const OpRecord& step, const Slice& slice,
                                               const Warpgroup& warpgroup, BulkRoom& room, Patience& patience) {
    run_op<false, NoMoreOps>(table, step, slice, warpgroup, room, patience);
  }
};

}  // namespace tilewire::cuda
