// Running the body of a verb on all ranks, those that a launcher started or our own.
// Used by bench, run, and by plan and check where they need ranks; its line of progress by check and sim, too.
#pragma once

#include <functional>
#include <string>

#include "cli/options.hpp"
#include "tilewire/group.hpp"

namespace tilewire::cli {

/// Whether plan and check need the ranks themselves: to measure, or because schedules choose otherwise for GPUs. Throws
/// Error(unsupported) that says what to do instead where there are none of --backend.
[[nodiscard]] bool needs_ranks(const Options& options);

/// Where RANK and WORLD_SIZE (or mpirun's names for them) are set, join that team; else start
/// `options.ranks` ranks. Only rank 0 should print. Throws what a rank threw, and what env::place throws.
void run_on_ranks(const Options& options, const std::function<void(Group&)>& body);

/// Take the number of ranks from the launcher's environment where there is one. Throws
/// Error(invalid_input) if --ranks was given and differs.
void adopt_launcher(Options& options, bool ranks_given);

/// A line on standard error that replaces itself; silent unless it is a terminal and this is rank 0.
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
