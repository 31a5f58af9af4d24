// Runs the body of a verb on all ranks: those that a launcher has started, or new ones.
// Used by bench, run, plan and check; check and sim use its progress line.
#pragma once

#include <functional>
#include <string>

#include "cli/options.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cli {

/// Whether plan and check need ranks: to measure, or because schedules choose differently for GPUs. Throws
/// Error(unsupported) with advice if --backend is not available here.
[[nodiscard]] bool needs_ranks(const Options& options);

/// If RANK and WORLD_SIZE (or mpirun's names for them) are set, join that team; else start `options.ranks` ranks. Only
/// rank 0 should print. Throws what a rank has thrown, and what env::place throws.
void run_on_ranks(const Options& options, const std::function<void(Group&)>& body);

/// Take the number of ranks from the launcher's environment, if there is one. Throws Error(invalid_input) if --ranks
/// was given and differs.
void adopt_launcher(Options& options, bool ranks_given);

/// A progress line on standard error, overwritten in place. Silent unless it is a terminal and this is rank 0.
class Progress {
 public:
  explicit Progress(int rank);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(const std::string& text);

 private:
  bool visible_;
};

}  // namespace tilewire::cli
