// The host's view of the plain worker CTAs: kernels for lanes of plain copies, or of plain sums and copies, and nothing
// else. They are short: what runs between a call of the library and its peers comes from memory, and of a long kernel
// that takes longer than the work does. Called by programs, around stream-ordered calls.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backends/cuda/kernels/worker_table.hpp"

namespace tilewire::cuda {

struct HostWorkerTable;

/// What all data lanes of a kernel have in common.
enum class Plain : uint8_t {
  no,      ///< other steps too, steps that CTAs share, epilogues, other types: the worker CTA takes them
  copies,  ///< the same bytes, in units of 16
  sums,    ///< of one 16-bit type, in units of eight elements, stored as that type; and copies
};
/// Of the lanes that come `after` a stream-ordered call, or of the others.
[[nodiscard]] Plain plain_ops(const HostWorkerTable& workers, bool after);

/// Most records of a kind that a step of the plain worker CTAs has.
inline constexpr uint32_t kPlainRecords = 8;

/// A step with all that it needs, in one place: records that lie apart come from memory one after another, and the
/// first ones of a kernel are what peers wait for. `first_...` of the step count from its own records.
struct alignas(128) PlainOp {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  OpRecord step{};
  uint32_t next = kNone;  ///< of the same CTA
  WaitRecord waits[kPlainRecords]{};
  SourceRecord sources[kPlainRecords]{};
  TargetRecord targets[kPlainRecords]{};
  PostRecord posts[kPlainRecords]{};
};

/// The steps of lanes that plain_ops allows: the first one of each CTA of the kernel, then the others.
[[nodiscard]] std::vector<PlainOp> lay_out_ops(const HostWorkerTable& workers, bool after);

/// What a plain worker CTA is launched with beside what all worker CTAs are.
struct PlainOps {
  Plain kind = Plain::no;
  const PlainOp* ops = nullptr;
};

/// Load the kernels into the current device: the first launch of one that is not there waits for all that run.
void load_plain_ops_kernels();

/// As launch_workers. `plain.kind`: not Plain::no.
void launch_plain_ops(const WorkerLaunch& launch, const PlainOps& plain, const Preamble& preamble, bool ends_call,
                      cudaStream_t stream);

}  // namespace tilewire::cuda
