// Which configs `auto` measures: candidates of all schedules, the fastest by the model first.
// Called by the tuner, and by `tilewire plan --candidates`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/spi/lower.hpp"

namespace tilewire::tuner {

struct Predicted {
  Config config{};
  std::optional<double> us{};  ///< of a call, by the model; nothing where there is no model, or it can make no plan
  std::string exception{};     ///< why it is measured whatever the model says
  bool fastest = false;        ///< an exception that beats all others where it can run: taken if nothing is measured
  std::string way{};           ///< the row of its schedule's table of candidates
};

/// The machine that stands for a target's GPUs in the simulator; nothing where no known machine is like them.
[[nodiscard]] std::optional<Machine> model_of(const Target& target);

/// All candidates. Where `target` has a model: a GEMM of the library and then an exchange come first, by tilewire and
/// by the library, since they are always measured; then those with an exception; then all others in the order of
/// predicted times. Simulates on all cores of the caller, for `most_s` seconds or a little longer; what is not reached
/// has no prediction. Else the first candidate of `sequential`, then the first of each schedule, the second of each,
/// and so on.
[[nodiscard]] std::vector<Predicted> candidates(const Problem& problem, const Team& team, const Target& target,
                                                double most_s = 1e9);

/// How many of `list` are measured at most, of those that the backend can run: all where there is no model.
[[nodiscard]] size_t most_measured(const std::vector<Predicted>& list, Tuning tuning);

}  // namespace tilewire::tuner
