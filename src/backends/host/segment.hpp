// The memory that the ranks of one host share: a control block and every rank's arena, in one mapping without a name,
// so that nothing remains after the last rank.
// Made by rank 0 at start-up (rendezvous.cpp), or by launch for ranks that are threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backends/host/slot.hpp"
#include "core/descriptor.hpp"
#include "tilewire/error.hpp"

namespace tilewire::host {

constexpr int kMaxRanks = 64;
constexpr int64_t kMailboxBytes = 128 << 10;
constexpr int64_t kTextBytes = 1024;

/// The first failure of any rank, which broke the group.
struct Breakage {
  int rank = 0;  ///< rank that failed
  ErrorKind kind = ErrorKind::rank_lost;
  std::string text;
};

enum class Presence : uint32_t { joined, left };

/// State of one rank that all ranks read.
struct RankState {
  std::atomic<int32_t> pid{0};
  std::atomic<Presence> presence{Presence::joined};
  std::atomic<uint64_t> completed{0};  ///< collectives that the rank has finished
  Slot arrived;                        ///< rounds of all_gather that the rank has entered
  Slot ready;                          ///< 1: the rank watches its peers and has joined the group
};

/// Start of the shared mapping. Zeroed memory is valid.
struct Control {
  std::atomic<uint32_t> broken{0};  ///< 0 = not broken, 1 = the failure is being written, 2 = broken
  int32_t broken_rank = 0;
  ErrorKind broken_kind{};
  std::array<char, kTextBytes> broken_text{};
  std::array<RankState, kMaxRanks> ranks{};
};

/// One mapping of the shared memory in this process.
class Segment {
 public:
  /// Make a new, zeroed segment. Throws Error(invalid_input) for impossible sizes, Error(unsupported) with the arena's
  /// size and the limit if the system refuses the size.
  static std::unique_ptr<Segment> create(int num_ranks, int64_t arena_bytes);
  /// Map the segment of another process, which has the same sizes. Throws Error(unsupported) as `create` does.
  static std::unique_ptr<Segment> attach(Descriptor memory, int num_ranks, int64_t arena_bytes);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  [[nodiscard]] int num_ranks() const { return num_ranks_; }
  [[nodiscard]] int64_t arena_bytes() const { return arena_bytes_; }
  [[nodiscard]] int descriptor() const { return memory_.get(); }
  [[nodiscard]] Control& control() const { return *control_; }
  [[nodiscard]] RankState& rank(int rank) const { return control_->ranks[rank]; }
  [[nodiscard]] std::byte* mailbox(int rank, int parity) const;
  [[nodiscard]] std::byte* arena(int rank) const;

  /// Record the first failure; later failures are ignored.
  void mark_broken(const Breakage& breakage) const;
  [[nodiscard]] bool broken() const { return control_->broken.load(std::memory_order_relaxed) != 0; }
  [[nodiscard]] std::optional<Breakage> breakage() const;
  /// An object, besides memory, that ranks share if they are threads of one process. The first call makes it.
  [[nodiscard]] std::shared_ptr<void> common(const std::function<std::shared_ptr<void>()>& make) const;

 private:
  Segment(Descriptor memory, int num_ranks, int64_t arena_bytes);

  Descriptor memory_;
  int num_ranks_;
  int64_t arena_bytes_;
  std::byte* base_ = nullptr;
  Control* control_ = nullptr;
  mutable std::mutex common_mutex_;
  mutable std::shared_ptr<void> common_;
};

}  // namespace tilewire::host
