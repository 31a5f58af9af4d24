// Collective exchanges and waits of host ranks.
// Called by users through Group, and by HostProgram.
#include "backends/host/group.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "backends/host/doorkeeper.hpp"
#include "backends/host/pool.hpp"
#include "backends/host/program.hpp"
#include "backends/host/rules.hpp"
#include "backends/messages.hpp"
#include "core/caught.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kSlice = 20'000'000;
constexpr int64_t kChunk = kMailboxBytes - 8;

/// The kind of error that the other ranks throw.
ErrorKind kind_for_others(const Breakage& breakage) {
  return breakage.kind == ErrorKind::timeout ? ErrorKind::timeout : ErrorKind::rank_lost;
}

}  // namespace

std::string in_words(const WaitReport& report) {
  if (report.task < 0) {
    return fmt::format("the ranks' exchange for {}: rank {} waits for {} to reach {}, saw {}", report.op, report.rank,
                       report.signal, report.wanted, report.seen);
  }
  return fmt::format("{}: rank {}, lane {}, task {} waits for {} to reach {}, saw {}", report.op, report.rank,
                     report.lane, report.task, report.signal, report.wanted, report.seen);
}

HostGroup::HostGroup(Membership membership, const JoinOptions& options, bool separate)
    : owner_(getpid()),
      segment_(std::move(membership.segment)),
      timeout_s_(options.timeout_s),
      exceptions_(std::uncaught_exceptions()),
      arena_(options.arena_bytes),
      reachable_(options.rank),
      pool_(std::make_unique<Pool>()) {
  team_.num_ranks = options.num_ranks;
  team_.rank = options.rank;
  ReachableMemory::Part arena{{}, segment_->arena_bytes()};
  for (int rank = 0; rank < team_.num_ranks; ++rank) arena.at.push_back(segment_->arena(rank));
  reachable_.set_arena(std::move(arena));
  if (separate) start_to_watch(std::move(membership.door), options.job);
}

HostGroup::~HostGroup() {
  if (!in_own_process()) return;
  if (std::uncaught_exceptions() > exceptions_) {
    segment_->mark_broken({rank(), ErrorKind::rank_lost, fmt::format("rank {} ended with an error", rank())});
  }
  segment_->rank(rank()).presence.store(Presence::left, std::memory_order_release);
}

bool HostGroup::in_own_process() const { return getpid() == owner_; }

void HostGroup::start_to_watch(Descriptor door, const std::string& job) {
  try {
    monitor_ = std::make_unique<Monitor>(segment_, rank(), std::move(door), job);
  } catch (...) {
    const Error error = caught_error();
    fail_with(error);
    throw Error(error.kind(), did_not_start(job, fmt::format("rank {} failed: {}", rank(), error.what())));
  }
  post(segment_->rank(rank()).ready, 1);
  const int64_t deadline = deadline_ns();
  for (int peer = 0; peer < team_.num_ranks; ++peer) wait_until_ready(peer, deadline, job);
}

void HostGroup::wait_until_ready(int peer, int64_t deadline, const std::string& job) const {
  while (!sleep_until_reached(segment_->rank(peer).ready, 1, std::clamp<int64_t>(deadline - now_ns(), 0, kSlice))) {
    if (const auto breakage = segment_->breakage()) {
      throw Error(breakage->kind, did_not_start(job, breakage->text));
    }
    if (now_ns() < deadline) continue;
    const std::string text =
        did_not_start(job, fmt::format("rank {} waits for rank {} to watch its peers", rank(), peer));
    segment_->mark_broken({rank(), ErrorKind::timeout, text});
    throw Error(ErrorKind::timeout, text);
  }
}

void HostGroup::begin_collective() {
  require(in_own_process(), "process {} was forked by rank {} (process {}), and is not a rank", getpid(), rank(),
          owner_);
  if (const auto breakage = segment_->breakage()) {
    throw Error(kind_for_others(*breakage), "the group is broken: " + breakage->text);
  }
  ++collectives_;
}

void HostGroup::end_collective() { segment_->rank(rank()).completed.store(collectives_, std::memory_order_release); }

int64_t HostGroup::deadline_ns() const { return now_ns() + static_cast<int64_t>(std::min(timeout_s_, 1e9) * 1e9); }

void HostGroup::wait(Slot& slot, uint64_t wanted, const Describe& describe) const {
  if (reached_soon(slot, wanted)) return;
  const int64_t deadline = deadline_ns();
  while (!sleep_until_reached(slot, wanted, std::clamp<int64_t>(deadline - now_ns(), 0, kSlice))) {
    keep_waiting(deadline, describe(slot.value.load(std::memory_order_relaxed)));
  }
}

void HostGroup::keep_waiting(int64_t deadline_ns, const WaitReport& report) const {
  check_peers(report);
  if (now_ns() < deadline_ns) return;
  throw Error(ErrorKind::timeout, fmt::format("timeout after {} s: {}", timeout_s_, in_words(report)), report);
}

Error HostGroup::stopped(const WaitReport& report) const {
  const auto breakage = segment_->breakage();
  if (!breakage) return {ErrorKind::internal, fmt::format("nothing is broken; {}", in_words(report)), report};
  return {kind_for_others(*breakage), fmt::format("{}; {}", breakage->text, in_words(report)), report};
}

void HostGroup::check_peers(const WaitReport& report) const {
  if (segment_->breakage()) throw stopped(report);
  for (int peer = 0; peer < team_.num_ranks; ++peer) {
    const RankState& state = segment_->rank(peer);
    if (state.presence.load(std::memory_order_acquire) != Presence::left) continue;
    if (state.completed.load(std::memory_order_acquire) >= collectives_) continue;
    throw Error(ErrorKind::rank_lost, fmt::format("rank {} has left; {}", peer, in_words(report)), report);
  }
}

void HostGroup::check_whole(const std::function<std::string()>& where) const {
  if (!segment_->broken()) return;
  const Breakage breakage = segment_->breakage().value();
  throw Error(kind_for_others(breakage), fmt::format("{}; {}", breakage.text, where()));
}

void HostGroup::check_whole_at_end(const std::string& op) const {
  if (!segment_->broken()) return;
  // NOTE: if the failing rank had finished this call, this call succeeds; the next collective will throw.
  const int culprit = segment_->breakage().value().rank;
  if (segment_->rank(culprit).completed.load(std::memory_order_acquire) >= collectives_) return;
  check_whole([&] { return fmt::format("{}: rank {} had finished the call, other ranks had not", op, rank()); });
}

void HostGroup::fail_with(const Error& error) {
  if (!in_own_process()) return;
  const bool told = error.kind() == ErrorKind::rank_lost || error.kind() == ErrorKind::timeout;
  segment_->mark_broken({rank(), error.kind(),
                         told ? std::string(error.what()) : fmt::format("rank {} failed: {}", rank(), error.what())});
}

std::vector<std::string> HostGroup::all_gather(const std::string& mine) {
  begin_collective();
  const int num_ranks = team_.num_ranks;
  std::vector<std::string> all(num_ranks);
  std::vector<uint64_t> sizes(num_ranks);
  const uint64_t my_size = mine.size();
  uint64_t most = 0;
  or_tell(*this, [&] {
    for (uint64_t begin = 0; begin == 0 || begin < most; begin += kChunk) {
      ++rounds_;
      // NOTE: two mailboxes, alternately: a rank writes the next chunk while peers still read this one.
      const int parity = static_cast<int>(rounds_ % 2);
      std::byte* out = segment_->mailbox(rank(), parity);
      std::memcpy(out, &my_size, 8);
      if (begin < my_size) std::memcpy(out + 8, mine.data() + begin, std::min<uint64_t>(kChunk, my_size - begin));
      post(segment_->rank(rank()).arrived, 1);
      for (int peer = 0; peer < num_ranks; ++peer) {
        wait(segment_->rank(peer).arrived, rounds_, [&](uint64_t seen) {
          return WaitReport{.op = std::string(verb_of(mine)),
                            .rank = rank(),
                            .task = -1,
                            .signal = fmt::format("arrival of rank {}", peer),
                            .wanted = rounds_,
                            .seen = seen};
        });
        const std::byte* in = segment_->mailbox(peer, parity);
        std::memcpy(&sizes[peer], in, 8);
        if (begin >= sizes[peer]) continue;
        all[peer].append(reinterpret_cast<const char*>(in + 8), std::min<uint64_t>(kChunk, sizes[peer] - begin));
      }
      most = *std::max_element(sizes.begin(), sizes.end());
    }
  });
  end_collective();
  require_one_step(all);
  return all;
}

Extent HostGroup::carve(const std::string& what, int64_t bytes) {
  const nlohmann::json mine = {{"what", what}, {"discarded", arena_.discarded()}};
  std::vector<std::vector<uint64_t>> discarded;
  std::string first;
  for (const std::string& text : exchange(*this, "allocate", json_text(mine))) {
    const auto theirs = parse_json(text, "a message of the ranks");
    const std::string wish = theirs["what"];
    if (discarded.empty()) first = wish;
    require(wish == first, "ranks disagree: rank 0 wants {}, rank {} wants {}", first, discarded.size(), wish);
    discarded.push_back(theirs["discarded"]);
  }
  for (const Extent& freed : arena_.reclaim(discarded)) {
    // Return the pages to the system; the next allocation finds zeros.
    madvise(segment_->arena(rank()) + freed.offset, static_cast<size_t>(freed.bytes), MADV_REMOVE);
  }
  const auto extent = arena_.carve(bytes);
  require(extent.has_value(), "the arena is too small: {} needs {} bytes, {} of {} are available", what, bytes,
          arena_.available(), segment_->arena_bytes());
  return *extent;
}

Extent HostGroup::carve_tensor(DType dtype, int64_t rows, int64_t cols) {
  constexpr int64_t kMost = int64_t{1} << 50;
  require(dtype >= DType::fp32 && dtype <= DType::int8, "allocate: unknown element type {}", static_cast<int>(dtype));
  require(rows >= 0 && cols >= 0 && (cols == 0 || rows <= kMost / cols), "allocate: {} x {} elements", rows, cols);
  const int64_t bytes = rows * cols * bytes_of(dtype);
  const Extent extent = carve(fmt::format("a tensor of {} x {} {}", rows, cols, to_string(dtype)), bytes);
  if (bytes > 0) tensors_.insert_or_assign(extent.offset, extent);
  return extent;
}

void HostGroup::give_back(const Extent& extent) {
  std::erase_if(tensors_, [&](const auto& tensor) { return tensor.second.id == extent.id; });
  arena_.discard(extent.id);
}

void HostGroup::give_back_tensor(int64_t offset) {
  const auto found = tensors_.find(offset);
  require(found != tensors_.end(), "free: no tensor of the arena starts there");
  give_back(Extent(found->second));
}

Tensor HostGroup::allocate(DType dtype, int64_t rows, int64_t cols) {
  const Extent extent = carve_tensor(dtype, rows, cols);
  std::byte* data = segment_->arena(rank()) + extent.offset;
  std::memset(data, 0, static_cast<size_t>(rows * cols * bytes_of(dtype)));
  // Wait until all ranks have zeroed the tensor, before any peer writes to it.
  barrier();
  return make_tensor(data, dtype, rows, cols);
}

void HostGroup::free(const Tensor& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0) return;
  give_back_tensor(static_cast<std::byte*>(tensor.data) - segment_->arena(rank()));
}

void HostGroup::adopt(const std::vector<std::byte*>& at, int64_t bytes) {
  adopt_together(*this, reachable_, at, bytes);
}

std::unique_ptr<Program> HostGroup::load(const Plan& plan) { return load_program(*this, plan); }

std::vector<std::string> HostGroup::unsupported(const Plan& plan) const { return missing_features(plan); }

void or_tell(HostGroup& group, const std::function<void()>& step) {
  try {
    step();
  } catch (...) {
    group.fail_with(caught_error());
    throw;
  }
}

std::vector<std::string> agree(HostGroup& group, const std::function<std::string()>& step) {
  return tilewire::agree(group, "agree", step);
}

void adopt_together(HostGroup& group, ReachableMemory& reachable, const std::vector<std::byte*>& at, int64_t bytes) {
  const ReachableMemory::Part part{at, bytes};
  const std::vector<std::string> all = agree(group, [&] {
    const int ranks = group.team().num_ranks;
    require(std::ssize(at) == ranks, "adopted memory of {} ranks, the team has {}", at.size(), ranks);
    reachable.check(part);
    return std::to_string(bytes);
  });
  for (size_t rank = 1; rank < all.size(); ++rank) {
    require(all[rank] == all[0], "adopted memory of {} bytes on rank 0, {} on rank {}", all[0], all[rank], rank);
  }
  reachable.add(part);
}

std::unique_ptr<HostGroup> join_host(const JoinOptions& options) {
  return std::make_unique<HostGroup>(meet(options), options, true);
}

std::unique_ptr<Group> make_host_group(std::unique_ptr<HostGroup> ranks, const JoinOptions&) { return ranks; }

std::optional<std::string> host_unavailable() { return std::nullopt; }

}  // namespace tilewire::host
