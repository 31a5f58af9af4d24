// One rank's membership in a team of host ranks: exchanges, shared tensors, and waits with deadlines.
// Made by join_host and launch; programs use its waits.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/host/arena.hpp"
#include "backends/host/monitor.hpp"
#include "backends/host/rendezvous.hpp"
#include "backends/reachable_memory.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::host {

class Pool;

/// Makes the report of a wait from the last value seen.
using Describe = std::function<WaitReport(uint64_t seen)>;

/// The report of a wait as a clause of a message.
[[nodiscard]] std::string in_words(const WaitReport& report);

class HostGroup final : public Group {
 public:
  /// `separate`: ranks are processes, so their deaths are watched. Then the constructor is collective, and throws on
  /// all ranks if one rank cannot watch.
  HostGroup(Membership membership, const JoinOptions& options, bool separate);
  ~HostGroup() override;

  [[nodiscard]] const Team& team() const override { return team_; }
  [[nodiscard]] std::string backend() const override { return "host"; }
  [[nodiscard]] Tensor allocate(DType dtype, int64_t rows, int64_t cols) override;
  void free(const Tensor& tensor) override;
  void adopt(const std::vector<std::byte*>& at, int64_t bytes) override;
  [[nodiscard]] std::optional<int64_t> place_of(const Tensor& tensor) const override {
    return reachable_.place_of(tensor);
  }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& mine) override;
  [[nodiscard]] std::vector<std::string> unsupported(const Plan& plan) const override;
  [[nodiscard]] std::unique_ptr<Program> load(const Plan& plan) override;

  [[nodiscard]] int rank() const { return team_.rank; }
  /// Whether ranks are processes; if not, they are threads of this process.
  [[nodiscard]] bool separate() const { return monitor_ != nullptr; }
  [[nodiscard]] double timeout_s() const { return timeout_s_; }
  /// Deadline of a wait that begins now.
  [[nodiscard]] int64_t deadline_ns() const;
  [[nodiscard]] const Segment& segment() const { return *segment_; }
  [[nodiscard]] const ReachableMemory& reachable() const { return reachable_; }
  /// The threads that all programs of this group share.
  [[nodiscard]] Pool& pool() { return *pool_; }
  /// Allocate `bytes` of every rank's arena. Collective; all ranks must give the same `what`. Throws
  /// Error(invalid_input), the same on all ranks.
  [[nodiscard]] Extent carve(const std::string& what, int64_t bytes);
  /// Allocate memory for a tensor.
  [[nodiscard]] Extent carve_tensor(DType dtype, int64_t rows, int64_t cols);
  /// Free a part of the arena. Not collective: the part is reused after all ranks have freed it.
  void give_back(const Extent& extent);
  /// The same for the tensor that starts at byte `offset` of the arena. Throws Error(invalid_input) if there is none.
  void give_back_tensor(int64_t offset);

  /// Begin and end of every collective call. begin_collective throws if the group is broken, or in a process that a
  /// rank has forked.
  void begin_collective();
  void end_collective();
  /// Wait until `slot` reaches `wanted`. Throws Error(timeout) or Error(rank_lost) with the report.
  void wait(Slot& slot, uint64_t wanted, const Describe& describe) const;
  /// One step of a wait that polls by itself: throw the same Errors if the wait must end.
  void keep_waiting(int64_t deadline_ns, const WaitReport& report) const;
  /// Throw the Error of a wait if the group is broken; `where` describes the interrupted work.
  void check_whole(const std::function<std::string()>& where) const;
  /// The same at the end of a call whose tasks are done: no Error if the failing rank had finished the call.
  void check_whole_at_end(const std::string& op) const;
  void fail_with(const Error& error) override;
  /// The Error of a wait that ended because the group is broken.
  [[nodiscard]] Error stopped(const WaitReport& report) const;

 private:
  void check_peers(const WaitReport& report) const;
  void start_to_watch(Descriptor door, const std::string& job);
  void wait_until_ready(int peer, int64_t deadline, const std::string& job) const;
  /// Whether this process is the rank itself; false in a process that the rank has forked.
  [[nodiscard]] bool in_own_process() const;

  pid_t owner_;
  std::shared_ptr<Segment> segment_;
  Team team_;
  double timeout_s_;
  int exceptions_;
  Arena arena_;
  ReachableMemory reachable_;
  std::map<int64_t, Extent> tensors_;  ///< by offset; without tensors of 0 bytes
  uint64_t collectives_ = 0;
  uint64_t rounds_ = 0;
  std::unique_ptr<Monitor> monitor_;
  std::unique_ptr<Pool> pool_;
};

/// Call `step`. If it throws, report its Error to all ranks and break the group. Not collective.
void or_tell(HostGroup& group, const std::function<void()>& step);

/// Call `step` on every rank, and return the results by rank. If it throws on some ranks, all ranks throw the Error of
/// the lowest, with its rank; the group stays usable. Collective.
std::vector<std::string> agree(HostGroup& group, const std::function<std::string()>& step);

/// Group::adopt. Collective.
void adopt_together(HostGroup& group, ReachableMemory& reachable, const std::vector<std::byte*>& at, int64_t bytes);

/// Join a team as a process.
[[nodiscard]] std::unique_ptr<HostGroup> join_host(const JoinOptions& options);
/// Functions for the table of backends.
[[nodiscard]] std::unique_ptr<Group> make_host_group(std::unique_ptr<HostGroup> ranks, const JoinOptions& options);
[[nodiscard]] std::optional<std::string> host_unavailable();

}  // namespace tilewire::host
