// The work of streams beside the kernels that wait and post: copies, library calls, and worker CTAs that start late.
// Made by lane_tables.cpp, enqueued by programs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backends/cuda/kernels/worker_table.hpp"
#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/vendor/cublaslt.hpp"
#include "backends/cuda/vendor/nccl.hpp"
#include "tilewire/plan.hpp"

namespace tilewire::cuda {

/// A copy. Sizes in bytes.
struct StreamCopy {
  std::byte* to = nullptr;  ///< this and `from` may be relative
  const std::byte* from = nullptr;
  size_t to_pitch = 0;
  size_t from_pitch = 0;
  size_t width = 0;
  size_t rows = 0;
};

/// The worker CTAs of one data lane, as a kernel of their own.
struct StreamWorkers {
  uint32_t lane = 0;  ///< index in the WorkerTable
};

/// The end of the StreamWorkers before it in its stream, with the same doorbell. It has its own place in the order of
/// works, since a wait for an end blocks all work that shares a queue of the device with it.
struct StreamWorkersEnd {};

/// One of the streams of a rank.
struct StreamUse {
  bool urgent = false;        ///< greatest priority
  bool has_notifier = false;  ///< a notify stream writes the completion doorbells of some of its copies
};

/// One piece of work of a stream, between the `open` and the `done` of its doorbell.
struct StreamWork {
  int stream = 0;                ///< which of the rank's streams
  int lane = 0;                  ///< number in the plan
  int64_t task = 0;              ///< gives the place in the order; of StreamWorkers the first, of their end the last
  Doorbell* doorbell = nullptr;  ///< null: it begins with the call
  std::variant<StreamCopy, LibraryGemm, LibraryCollective, StreamWorkers, StreamWorkersEnd> what{};
  bool follows = false;  ///< it begins directly after the work before it in its stream, without a wait for `open`
  bool notified_aside = false;  ///< the notify stream writes `done`; the work's own stream goes on at once
};

/// Whether a task is a GEMM call of the vendor's library.
[[nodiscard]] bool calls_library(const Task& task);
[[nodiscard]] bool calls_library(const Plan& plan);
/// Whether a task is a part of one collective of NCCL.
[[nodiscard]] bool calls_collective(const Task& task);
[[nodiscard]] bool calls_collective(const Plan& plan);
/// Why cuBLASLt cannot make the plan's calls (epilogue, destinations, types), or nothing.
[[nodiscard]] std::optional<std::string> refuses_library(const Plan& plan);

/// Sort works into the order in which they are enqueued. `places`: order_of_tasks, of the rank's lanes.
void put_in_order(std::vector<StreamWork>& works, const std::vector<std::vector<int64_t>>& places);

/// The largest number of works of any rank.
[[nodiscard]] int64_t most_stream_work(const Plan& plan);

/// Enqueue a copy.
void enqueue_copy(const StreamCopy& copy, const Bases& bases, cudaStream_t stream);
/// Before and after work with a doorbell: wait until it opens; write that the work is complete.
void wait_for_doorbell(const Driver& driver, Doorbell* doorbell, cudaStream_t stream);
void ring_done(const Driver& driver, Doorbell* doorbell, cudaStream_t stream);

}  // namespace tilewire::cuda
