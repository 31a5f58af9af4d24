// Shared memory by memfd: sparse, committed on first use, freed with its last user.
// Called by rendezvous, launch and groups.
#include "backends/host/segment.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "core/text.hpp"

namespace tilewire::host {
namespace {

constexpr int64_t kPage = 2 << 20;

int64_t round_up(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

int64_t mailbox_offset() { return round_up(sizeof(Control)); }

int64_t arena_offset(int num_ranks) { return mailbox_offset() + round_up(2 * kMailboxBytes * num_ranks); }

int64_t size_of(int num_ranks, int64_t arena_bytes) {
  return arena_offset(num_ranks) + num_ranks * round_up(arena_bytes);
}

/// Throw Error(unsupported) with the sizes and the options that set them unless the call succeeded.
void require_room(const SystemCall& call, const char* what, int num_ranks, int64_t arena_bytes) {
  if (call.ok()) return;
  fail(ErrorKind::unsupported,
       "{} {} for {} ranks with arenas of {}: {}; make the arena smaller: --arena-gib, or arena_bytes of JoinOptions, "
       "LaunchOptions, tilewire_join_options or tilewire_launch_options",
       what, in_bytes(size_of(num_ranks, arena_bytes)), num_ranks, in_bytes(arena_bytes), call.why());
}

/// NOTE: check the limit of file sizes first, which applies to memfd, too: beyond it ftruncate raises SIGXFSZ.
SystemCall set_size(const Descriptor& memory, int64_t bytes) {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (limited && limit.rlim_cur < static_cast<rlim_t>(bytes)) return {-1, EFBIG};
  return system_call([&] { return ftruncate(memory.get(), bytes); });
}

}  // namespace

std::unique_ptr<Segment> Segment::create(int num_ranks, int64_t arena_bytes) {
  constexpr int64_t kMost = int64_t{1} << 45;
  require(num_ranks >= 1 && num_ranks <= kMaxRanks, "host ranks: want 1 to {}, got {}", kMaxRanks, num_ranks);
  require(arena_bytes >= 0 && arena_bytes <= kMost / num_ranks, "arena of {} bytes for each of {} ranks: want 0 to {}",
          arena_bytes, num_ranks, kMost / num_ranks);
  Descriptor memory = granted_descriptor("memfd_create", [] { return memfd_create("tilewire", MFD_CLOEXEC); });
  require_room(set_size(memory, size_of(num_ranks, arena_bytes)), "sizing shared memory of", num_ranks, arena_bytes);
  std::unique_ptr<Segment> segment(new Segment(std::move(memory), num_ranks, arena_bytes));
  new (segment->base_) Control();
  return segment;
}

std::unique_ptr<Segment> Segment::attach(Descriptor memory, int num_ranks, int64_t arena_bytes) {
  return std::unique_ptr<Segment>(new Segment(std::move(memory), num_ranks, arena_bytes));
}

Segment::Segment(Descriptor memory, int num_ranks, int64_t arena_bytes)
    : memory_(std::move(memory)), num_ranks_(num_ranks), arena_bytes_(arena_bytes) {
  const auto bytes = static_cast<size_t>(size_of(num_ranks, arena_bytes));
  const SystemCall mapped = system_call(
      [&] { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_.get(), 0); });
  require_room(mapped, "mapping", num_ranks, arena_bytes);
  base_ = reinterpret_cast<std::byte*>(mapped.value);
  control_ = reinterpret_cast<Control*>(base_);
}

Segment::~Segment() { munmap(base_, static_cast<size_t>(size_of(num_ranks_, arena_bytes_))); }

std::byte* Segment::mailbox(int rank, int parity) const {
  return base_ + mailbox_offset() + (2 * rank + parity) * kMailboxBytes;
}

std::byte* Segment::arena(int rank) const { return base_ + arena_offset(num_ranks_) + rank * round_up(arena_bytes_); }

void Segment::mark_broken(const Breakage& breakage) const {
  uint32_t whole = 0;
  if (!control_->broken.compare_exchange_strong(whole, 1)) return;
  control_->broken_rank = breakage.rank;
  control_->broken_kind = breakage.kind;
  const size_t length = std::min(breakage.text.size(), size_t{kTextBytes} - 1);
  std::memcpy(control_->broken_text.data(), breakage.text.data(), length);
  control_->broken_text[length] = '\0';
  control_->broken.store(2, std::memory_order_release);
}

std::shared_ptr<void> Segment::common(const std::function<std::shared_ptr<void>()>& make) const {
  const std::lock_guard lock(common_mutex_);
  if (!common_) common_ = make();
  return common_;
}

std::optional<Breakage> Segment::breakage() const {
  if (!broken()) return std::nullopt;
  // NOTE: stop waiting after 100 ms: the rank that writes the text may have been killed.
  for (int look = 0; look < 100; ++look) {
    if (control_->broken.load(std::memory_order_acquire) == 2) {
      return Breakage{control_->broken_rank, control_->broken_kind, control_->broken_text.data()};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Breakage{0, ErrorKind::rank_lost, "a rank died while it reported a failure"};
}

}  // namespace tilewire::host
