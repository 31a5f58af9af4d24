// A group: one rank's membership in a team at run time. How ranks are launched or joined.
// Called by users; implemented by backends (spi/backend.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/plan.hpp"
#include "tilewire/tensor.hpp"

namespace tilewire {

class Error;
class Program;  // spi/backend.hpp
struct Target;  // spi/lower.hpp

/// The side that keeps the calls of a rank in sequence on its GPU.
enum class CallOrder {
  any,     ///< the library, by events: calls and graph replays may be on any streams
  stream,  ///< the caller, as with NCCL: a call or replay begins after the last one has ended, as in one stream. The
           ///< library adds no events, which cost microseconds in a graph. Overlapping calls break the team, with an
           ///< Error that names them
};

/// How to join a team.
struct JoinOptions {
  int rank = 0;
  int num_ranks = 1;
  std::string job{};  ///< the ranks of one host find each other by this name
  /// Limit of a rank's symmetric memory in bytes, committed on demand. cuda: the arena, the operators' shared
  /// workspace and each copy of their LL data have this limit each.
  int64_t arena_bytes = int64_t{16} << 30;
  double timeout_s = 30;             ///< deadline of every wait in seconds, start-up included
  int local_rank = -1;               ///< index of the rank on this host; selects the GPU; -1 = same as `rank`
  CallOrder order = CallOrder::any;  ///< cuda: only if each rank has a GPU to itself. The same on all ranks
  /// cuda: limit of the SMs that the group's own kernels use on a GPU; 0 = all. Other kernels that wait for ranks, such
  /// as NCCL on another stream, run on the remaining SMs, in any order on each rank. cuBLASLt may use all SMs. NCCL
  /// calls of the group itself (`collective` = library) are not limited.
  int sms = 0;
};

/// Rank, number of ranks and job name from the environment, as mpirun, torchrun or another launcher set them. Throws
/// Error(invalid_input) if RANK or WORLD_SIZE is missing or malformed, or if launchers contradict each other;
/// Error(unsupported) if some ranks are on other hosts.
[[nodiscard]] JoinOptions join_options_from_env();

/// One rank's membership in a team at run time. Functions are collective unless their comment says "Not collective".
class Group {
 public:
  virtual ~Group() = default;
  /// Ranks and links; Team::rank is this rank. Not collective.
  [[nodiscard]] virtual const Team& team() const = 0;
  /// "host", "cuda". Not collective.
  [[nodiscard]] virtual std::string backend() const = 0;
  /// Description of the ranks' devices: "2 x NVIDIA H200, 132 SMs"; empty on the host. The same on all ranks. Not
  /// collective.
  [[nodiscard]] virtual std::string hardware() const { return {}; }
  /// This rank's device number in this process; 0 on the host. Not collective.
  [[nodiscard]] virtual int device() const { return 0; }
  /// Allocate a zeroed tensor in the arena, of the same shape on every rank. Peers can address it. It lives until
  /// `free` or the end of the group. Throws Error(invalid_input) with the bytes needed if the arena is too small.
  [[nodiscard]] virtual Tensor allocate(DType dtype, int64_t rows, int64_t cols) = 0;
  /// Return a tensor of `allocate` to the arena. No running call may use it. Not collective: the memory is reused after
  /// all ranks have freed it. Throws Error(invalid_input) if no tensor of the arena starts at its data.
  virtual void free(const Tensor& tensor) = 0;
  /// Treat memory that the caller already shares among the ranks (such as PyTorch's symmetric memory) as part of the
  /// arena: in this process byte i of rank r is at `at[r] + i`. All ranks give the same number of bytes. The memory
  /// must outlive the group's calls. Collective. Throws Error(invalid_input) on all ranks if the numbers of bytes
  /// differ or the memory overlaps the arena.
  virtual void adopt(const std::vector<std::byte*>& at, int64_t bytes) = 0;
  /// Position of a tensor that may be a buffer of Problem::arena: not empty, dense, in the arena or in adopted memory;
  /// nothing for any other tensor. On GPUs the position must be the same on all ranks. Not collective.
  [[nodiscard]] virtual std::optional<int64_t> place_of(const Tensor& tensor) const = 0;
  /// Allocate memory for callers' tensors, on the host or on this rank's device. The contents are undefined. Not
  /// collective. Throws Error(invalid_input) if `bytes` is negative.
  [[nodiscard]] virtual std::shared_ptr<std::byte> new_memory(int64_t bytes) const;
  /// cuda: whether the stream, in Op::run's notation, is being captured into a graph. Not collective.
  [[nodiscard]] virtual bool captures(void* /*stream*/) const { return false; }
  /// Whether the host can read and write memory of `new_memory` directly; if not, use `copy`. Not collective.
  [[nodiscard]] virtual bool host_addresses_memory() const { return true; }
  /// Copy between memory of `new_memory`, the arena and host memory; complete on return. Not collective. Throws
  /// Error(invalid_input) for a negative number of bytes, and for bytes from or to a null pointer.
  virtual void copy(void* to, const void* from, int64_t bytes) const;
  /// Return the bytes of all ranks, by rank. For small data: agreement on a config, a time, a hash. As every collective
  /// it throws Error(invalid_input) on all ranks if ranks call different collectives, and names both. Op::run exchanges
  /// no messages: if one rank is in Op::run and the others are here, their waits end at the deadline.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  void barrier();
  /// The target for which this group lowers plans. The same on all ranks. Not collective.
  [[nodiscard]] virtual Target target() const;
  /// The features of the plan that this backend lacks, such as "transport = tma"; empty = none. Not collective.
  [[nodiscard]] virtual std::vector<std::string> unsupported(const Plan& plan) const = 0;
  /// Remarks for the user about how the plan runs: a slower path and its reason, an omitted step. The same on all
  /// ranks. Not collective.
  [[nodiscard]] virtual std::vector<std::string> remarks(const Plan& /*plan*/) const { return {}; }
  /// Allocate workspace and build tables. The plan must be validated. If it is not lowered, `load` lowers it for
  /// `target`. Throws Error(invalid_input) if it is lowered for another target, or if ranks hold different plans.
  [[nodiscard]] virtual std::unique_ptr<Program> load(const Plan& plan) = 0;
  /// Report to all ranks that this rank failed with `error`: every wait ends, and the group is broken. Not collective.
  virtual void fail_with(const Error& error) = 0;
};

/// Join the team under `backend`. Throws Error(timeout) with the ranks that did not join.
[[nodiscard]] std::unique_ptr<Group> join(const std::string& backend, const JoinOptions& options);

struct LaunchOptions {
  std::string backend = "host";
  bool threads = false;  ///< ranks as threads of this process instead of processes
  int64_t arena_bytes = JoinOptions{}.arena_bytes;
  double timeout_s = JoinOptions{}.timeout_s;
  CallOrder order = CallOrder::any;  ///< as in JoinOptions
  int sms = 0;                       ///< as in JoinOptions
};

/// Start `num_ranks` ranks on this host, run `body` on each, and return when all have ended. Throws the Error of the
/// lowest rank that failed by itself; else Error(rank_lost) with the signal that killed a rank, or the rank whose
/// process ended before its `body` returned. Any other exception of a `body` becomes Error(internal), "rank 1: " and
/// its text. Throws Error(invalid_input) for an invalid number of ranks, timeout or number of SMs, and for an empty
/// `body`.
/// Ranks that are processes are forked from the calling thread, and changes that `body` makes in memory stay in its
/// process. Call `launch` before other threads exist and before OpenMP has run on more than one thread. A process that
/// `body` forks is not a rank: launch does not wait for it, and its end does not affect the group.
void launch(int num_ranks, const LaunchOptions& options, const std::function<void(Group&)>& body);

}  // namespace tilewire
