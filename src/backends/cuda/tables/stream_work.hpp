// What streams do beside the kernels that wait and post: copies, calls of cuBLASLt and NCCL, and worker CTAs that start
// late.
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

/// Bytes.
struct StreamCopy {
  std::byte* to = nullptr;  ///< it and `from` may be relative
  const std::byte* from = nullptr;
  size_t to_pitch = 0;
  size_t from_pitch = 0;
  size_t width = 0;
  size_t rows = 0;
};

/// The CTAs of one data lane, as a kernel of their own.
struct StreamWorkers {
  uint32_t lane = 0;  ///< index in the WorkerTable
};

/// The end of the StreamWorkers before it in its stream, which has the same doorbell. What waits for an end holds up
/// all that shares a queue of the device with it, so it has a place in the order of its own.
struct StreamWorkersEnd {};

/// One of the streams of a rank.
struct StreamUse {
  bool urgent = false;        ///< it comes before others
  bool has_notifier = false;  ///< another stream says that some of its work is done
};

/// Something that a stream does between two of its doorbell's words.
struct StreamWork {
  int stream = 0;    ///< which of the rank's streams
  int lane = 0;      ///< in the plan
  int64_t task = 0;  ///< that it does; of a execute the first, of its end the last: its place in the order is theirs
  Doorbell* doorbell = nullptr;  ///< none: it begins with the call
  std::variant<StreamCopy, LibraryGemm, LibraryCollective, StreamWorkers, StreamWorkersEnd> what{};
  bool follows = false;  ///< it begins when what is before it in its stream has ended, whatever the doorbell says
  bool notified_aside = false;  ///< its stream's notifier says that it is done, and the stream goes on at once
};

/// Whether a task is one call of the vendor's GEMM.
[[nodiscard]] bool calls_library(const Task& task);
[[nodiscard]] bool calls_library(const Plan& plan);
/// Whether a task is a part of one collective of NCCL.
[[nodiscard]] bool calls_collective(const Task& task);
[[nodiscard]] bool calls_collective(const Plan& plan);
/// Why cuBLASLt cannot make the plan's calls (epilogue, destinations, types), or nothing.
[[nodiscard]] std::optional<std::string> refuses_library(const Plan& plan);

/// The order in which streams are handed their work. `places`: order_of_tasks, of the rank's lanes.
void put_in_order(std::vector<StreamWork>& works, const std::vector<std::vector<int64_t>>& places);

/// Most pieces of work that streams do for one rank.
[[nodiscard]] int64_t most_stream_work(const Plan& plan);

/// Enqueue a copy.
void enqueue_copy(const StreamCopy& copy, const Bases& bases, cudaStream_t stream);
/// Before and after gated work: wait until the doorbell opens; say that it is done.
void wait_for_doorbell(const Driver& driver, Doorbell* doorbell, cudaStream_t stream);
void ring_done(const Driver& driver, Doorbell* doorbell, cudaStream_t stream);

}  // namespace tilewire::cuda
