// `auto`: measures candidates of all schedules once, and remembers the winner.
// Called by make_op where no config is given.
#pragma once

#include <string>

#include "tilewire/config.hpp"
#include "tilewire/group.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::tuner {

struct Options {
  std::string file{};  ///< where winners are remembered; only rank 0's counts
  Tuning tuning = Tuning::full;
};

/// The config to use, and why, in words for Op::explain.
struct Choice {
  Config config;
  std::string why;
};

/// Collective; the same on every rank. The problem must be valid. Where it measures, `sequential` is always a
/// candidate, so the winner is never slower than it was.
[[nodiscard]] Choice choose(Group& group, const Problem& problem, const Options& options);

/// Schedule and knobs in one line, "fused {"tile_m":64}".
[[nodiscard]] std::string describe(const Config& config);

}  // namespace tilewire::tuner
