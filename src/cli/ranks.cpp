// Starts ranks, or joins those that a launcher has started.
// Called by the verbs that execute plans.
#include "cli/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "cli/counted.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/env.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cli {
namespace {

constexpr double kMostArenaGib = 32768;  // of all ranks: the limit of a host's shared memory

CallOrder order_of(const Options& options) {
  const bool stream = options.order == "stream";
  require(stream || options.order == "any", "--order: unknown '{}'; known: any, stream", shown_name(options.order));
  return stream ? CallOrder::stream : CallOrder::any;
}

/// Join the team of the ranks that a launcher has started.
std::unique_ptr<Group> join_launched(const Options& options, const env::Place& place, int64_t arena_bytes,
                                     double timeout_s) {
  JoinOptions join_options = join_options_from_env();
  join_options.arena_bytes = arena_bytes;
  join_options.timeout_s = timeout_s;
  join_options.order = order_of(options);
  try {
    return join(options.backend, join_options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::timeout) throw;
    throw Error(error.kind(), fmt::format("{}; rank and number of ranks come from {}", error.what(), place.source));
  }
}

}  // namespace

void adopt_launcher(Options& options, bool ranks_given) {
  const auto place = env::place();
  if (!place) return;
  const int launched = place->num_ranks;
  require(!ranks_given || options.ranks == launched, "--ranks {}, but the launcher started {} ({})", options.ranks,
          launched, place->source);
  require(!options.threads, "--threads: the launcher has started {} processes", launched);
  options.ranks = launched;
}

bool needs_ranks(const Options& options) {
  const bool on_host = options.backend == backends().front().name;
  if (const auto reason = find_backend(options.backend).unavailable(); reason && !on_host) {
    fail(ErrorKind::unsupported,
         "backend {} is not available: {}; GPU choices without a GPU: tilewire sim --machine h200x4", options.backend,
         *reason);
  }
  return options.schedule == "auto" || !on_host;
}

void run_on_ranks(const Options& options, const std::function<void(Group&)>& body) {
  const double most_gib = kMostArenaGib / std::max(1, options.ranks);
  require(options.arena_gib > 0 && options.arena_gib <= most_gib, "--arena-gib {}: want more than 0, and at most {} {}",
          options.arena_gib, most_gib, "for " + counted(options.ranks, "rank"));
  const double timeout_s = options.timeout_s ? *options.timeout_s : env::timeout_s();
  static_cast<void>(find_backend(options.backend));
  const auto arena_bytes = static_cast<int64_t>(options.arena_gib * (int64_t{1} << 30));
  if (const auto place = env::place()) {
    const std::unique_ptr<Group> group = join_launched(options, *place, arena_bytes, timeout_s);
    body(*group);
    return;
  }
  if (const auto half = env::half_place()) {
    std::cerr << fmt::format("tilewire: note: {}: {} ranks are started here\n", *half, options.ranks);
  }
  launch(options.ranks,
         {.backend = options.backend,
          .threads = options.threads,
          .arena_bytes = arena_bytes,
          .timeout_s = timeout_s,
          .order = order_of(options)},
         body);
}

Progress::Progress(int rank) : visible_(rank == 0 && ::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { show(""); }

void Progress::show(const std::string& text) {
  if (visible_) std::cerr << "\r\033[K" << text << std::flush;
}

}  // namespace tilewire::cli
