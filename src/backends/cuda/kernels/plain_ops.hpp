// The host's view of the kernels for plain ops: lanes that have plain copies, or plain sums and copies, and nothing
// else.
// Called by programs, around stream-ordered GEMMs. The kernels are short: peers wait for the ops after the GEMM, and
// a long kernel's instructions would take longer to come from memory than the work takes.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

struct HostWorkerTable;

/// The common kind of all data lanes of a kernel.
enum class Plain : uint8_t {
  no,      ///< has other ops, ops that CTAs share, epilogues, or other dtypes: worker CTAs execute it
  copies,  ///< unchanged bytes, in units of 16
  sums,    ///< sums of one 16-bit dtype, in units of eight elements, stored in that dtype; and copies
};
/// The kind of the lanes that run `after` a stream-ordered GEMM, or else of the other lanes.
[[nodiscard]] Plain plain_ops(const HostWorkerTable& workers, bool after);

/// Most records of each kind in a plain op.
inline constexpr uint32_t kPlainRecords = 8;

/// An op and all of its records in one place: separate records would come from memory one after another, and peers wait
/// for the first ops of a kernel. `first_...` of the op count from its own records.
struct alignas(128) PlainOp {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  OpRecord step{};
  uint32_t next = kNone;  ///< the next op of the same CTA
  WaitRecord waits[kPlainRecords]{};
  SourceRecord sources[kPlainRecords]{};
  TargetRecord targets[kPlainRecords]{};
  PostRecord posts[kPlainRecords]{};
};

/// The ops of lanes that plain_ops accepts: first the first op of each CTA of the kernel, then the others.
[[nodiscard]] std::vector<PlainOp> lay_out_ops(const HostWorkerTable& workers, bool after);

/// The parameters of a plain kernel in addition to WorkerLaunch.
struct PlainOps {
  Plain kind = Plain::no;
  const PlainOp* ops = nullptr;
};

/// Load the kernels into the current device: the first launch of one that is not loaded waits for all running kernels.
void load_plain_ops_kernels();

/// As launch_workers. `plain.kind` is not Plain::no.
void launch_plain_ops(const WorkerLaunch& launch, const PlainOps& plain, const Preamble& preamble, bool ends_call,
                      cudaStream_t stream);

}  // namespace tilewire::cuda
