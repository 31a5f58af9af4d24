// Start of ranks, or joining the ones that a launcher started.
// Called by the verbs that execute plans.
#include "cli/ranks.hpp"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "core/text.hpp"
#include "tilewire/env.hpp"

namespace tilewire::cli {
namespace {

bool has_launcher() { return env::rank().has_value() && env::num_ranks().has_value(); }

}  // namespace

bool is_first_process() { return !has_launcher() || *env::rank() == 0; }

void adopt_launcher(Options& options, bool ranks_given) {
  if (!has_launcher()) return;
  const int launched = *env::num_ranks();
  require(!ranks_given || options.ranks == launched, "--ranks {}, but the launcher started {}", options.ranks,
          launched);
  require(!options.threads, "--threads: the launcher has started {} processes", launched);
  options.ranks = launched;
}

void run_on_ranks(const Options& options, const std::function<void(Group&)>& body) {
  require(options.arena_gib > 0 && options.arena_gib < 65536, "--arena-gib {}: want more than 0", options.arena_gib);
  const double timeout_s = options.timeout_s ? *options.timeout_s : env::timeout_s();
  static_cast<void>(find_backend(options.backend));
  const auto arena_bytes = static_cast<int64_t>(options.arena_gib * (int64_t{1} << 30));
  // What is buffered now would be written once by every process.
  std::cout << std::flush;
  std::fflush(nullptr);
  if (has_launcher()) {
    JoinOptions join_options = join_options_from_env();
    join_options.arena_bytes = arena_bytes;
    join_options.timeout_s = timeout_s;
    const std::unique_ptr<Group> group = join(options.backend, join_options);
    body(*group);
    return;
  }
  launch(options.ranks,
         {.backend = options.backend, .threads = options.threads, .arena_bytes = arena_bytes, .timeout_s = timeout_s},
         body);
}

Progress::Progress(int rank) : visible_(rank == 0 && ::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { show(""); }

void Progress::show(const std::string& text) {
  if (visible_) std::cerr << "\r\033[K" << text << std::flush;
}

}  // namespace tilewire::cli
