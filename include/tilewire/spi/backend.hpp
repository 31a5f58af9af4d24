// What a backend must do: a Group (group.hpp), the Program that it loads from a plan, and a row of the table.
// Implemented in src/backends/<name>; the table is src/backends/backends.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/error.hpp"
#include "tilewire/group.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/tensor.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

struct RunOptions {
  bool trace = false;
  int64_t max_delay_us = 0;  ///< for tests, host: sleep up to this before each task; cuda: Error(unsupported)
  /// cuda: the cudaStream_t in which the call is enqueued, or captured, with CUDA's meaning of 0, 1 and 2; `run` then
  /// does not wait for it, and a later `run`, or `failure`, says what went wrong. Nothing: `run` waits for the end.
  std::optional<void*> stream{};
};

/// Calls in a row that a device's clock times.
struct Burst {
  int calls = 1;
  bool graph = false;  ///< replays of one captured call
  bool trace = false;  ///< every call is traced
  bool cold = false;   ///< each call comes after a write over the device's last cache, which is not timed
};

/// One call of such a burst on this rank.
struct BurstTime {
  double us = 0;                     ///< by the device's clock
  std::vector<double> enqueue_us{};  ///< what the host took to enqueue each of them
};

/// A plan that a backend has loaded for one rank: workspace carved, tables built.
class Program {
 public:
  virtual ~Program() = default;
  /// One call: collective, returns when this rank's outputs are complete and no peer reads its inputs
  /// any more. Tensors in the order of the operator's buffers. Throws Error (rank_lost, timeout); after
  /// that the group is broken and every later call says so. Throws Error(invalid_input), before anything runs, where
  /// tensors are not what Op::run wants.
  virtual void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) = 0;
  /// Return when all calls of the group that are enqueued have ended. Throws what failed. Not collective.
  virtual void wait() {}
  /// What is known by now to have failed, of calls that `run` did not wait for. Not collective.
  [[nodiscard]] virtual std::optional<Error> failure() { return {}; }
  /// Make the calls of a burst, after one that is not counted, and wait for them. Nothing, and nothing is done, where
  /// the host's clock is the only one. Otherwise as `run`.
  [[nodiscard]] virtual std::optional<BurstTime> time_on_device(std::span<const Tensor> /*inputs*/,
                                                                std::span<const Tensor> /*outputs*/,
                                                                const Burst& /*burst*/) {
    return std::nullopt;
  }
  /// This rank's events of the last traced call.
  [[nodiscard]] virtual Trace trace() const = 0;
};

namespace host {
class HostGroup;
}

/// One row of the table of backends.
struct Backend {
  const char* name;
  const char* summary;
  /// Nothing, or why this machine or build cannot run it. Leaves the process fit to fork ranks.
  std::optional<std::string> (*unavailable)();
  /// The group of ranks that have met, as processes or as threads of this one. Collective.
  std::unique_ptr<Group> (*make_group)(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options);
};

[[nodiscard]] std::span<const Backend> backends();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Backend& find_backend(const std::string& name);
/// The same, and throw Error(unsupported) that says why where it is not available.
[[nodiscard]] const Backend& available_backend(const std::string& name);

}  // namespace tilewire
