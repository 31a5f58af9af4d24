// The interface of a backend: a Group (group.hpp), the Program that it loads from a plan, and a row of the table.
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
  int64_t max_delay_us = 0;  ///< for tests, host: random sleep up to this before each task; cuda: Error(unsupported)
  /// cuda: the cudaStream_t in which the call is enqueued or captured; 0, 1 and 2 have CUDA's meaning. `run` then does
  /// not wait for the call; a later `run`, or `failure`, reports its errors. Empty: `run` waits for the end.
  std::optional<void*> stream{};
};

/// A series of calls that the device's clock times.
struct Burst {
  int calls = 1;
  bool graph = false;  ///< replay one captured call
  bool trace = false;  ///< trace every call
  bool cold = false;   ///< before each call overwrite the device's last-level cache; the overwrite is not timed
};

/// Times of a burst on this rank.
struct BurstTime {
  double us = 0;                     ///< time of one call by the device's clock
  std::vector<double> enqueue_us{};  ///< host time to enqueue each call
};

/// A plan that a backend has loaded for one rank: workspace is allocated, tables are built.
class Program {
 public:
  virtual ~Program() = default;
  /// Make one call. Collective. Returns when this rank's outputs are complete and no peer reads its inputs any more.
  /// Tensors are in the order of the operator's buffers. Throws Error(rank_lost) and Error(timeout); the group is then
  /// broken, and every later call throws. Throws Error(invalid_input), before anything runs, if tensors break the rules
  /// of Op::run.
  virtual void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options) = 0;
  /// Return when all enqueued calls of the group have ended. Throws the Error of a failed call. Not collective.
  virtual void wait() {}
  /// The Error of a call that `run` did not wait for, if one has failed by now. Not collective.
  [[nodiscard]] virtual std::optional<Error> failure() { return {}; }
  /// Make the calls of a burst, after one warm-up call, and wait for them. Returns nothing, and runs nothing, if the
  /// backend has only the host's clock. Otherwise as `run`.
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
  /// The reason why this machine or build cannot run the backend, or nothing. The process can still fork ranks
  /// afterwards.
  std::optional<std::string> (*unavailable)();
  /// Make the group of ranks that have met, as processes or as threads of this process. Collective.
  std::unique_ptr<Group> (*make_group)(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options);
};

[[nodiscard]] std::span<const Backend> backends();
/// Throw Error(invalid_input) that lists the known names.
[[nodiscard]] const Backend& find_backend(const std::string& name);
/// The same; throws Error(unsupported) with the reason if the backend is not available.
[[nodiscard]] const Backend& available_backend(const std::string& name);

}  // namespace tilewire
