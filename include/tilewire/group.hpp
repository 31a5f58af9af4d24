// A team at run time: how ranks are started or joined, and what one of them may ask its group.
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

/// Who keeps the calls of a rank one after another on its GPU.
enum class CallOrder {
  any,     ///< the library, by events: calls and replays of graphs may come on any streams
  stream,  ///< the caller, as with NCCL: a call or replay begins when the one before has ended, as in one stream. So no
           ///< event lies between them, which in a graph costs microseconds. An overlap breaks the team, by name
};

/// How to join a team.
struct JoinOptions {
  int rank = 0;
  int num_ranks = 1;
  std::string job{};  ///< name under which the ranks of one host find each other
  /// Most symmetric memory of a rank, committed as it is needed. cuda: of the arena, and of workspace that operators
  /// share, each.
  int64_t arena_bytes = int64_t{16} << 30;
  double timeout_s = 30;             ///< deadline of every wait, start-up included
  int local_rank = -1;               ///< rank among those of this host, which chooses the GPU; -1 = as `rank`
  CallOrder order = CallOrder::any;  ///< cuda: where each rank has a GPU to itself. The same on all ranks
  /// cuda: most SMs that the group's own kernels take of a GPU, 0 = all. What else waits for other ranks, NCCL on
  /// another stream say, runs on the rest, in whatever order the ranks begin with the two. Calls of cuBLASLt may take
  /// all, those of NCCL (`collective` = library) are not limited.
  int sms = 0;
};

/// The rank, size and job name that mpirun, torchrun or a launcher put into the environment.
/// Throws Error(invalid_input) where RANK or WORLD_SIZE are missing or malformed, or launchers contradict each other;
/// Error(unsupported) where some of the ranks are on other hosts.
[[nodiscard]] JoinOptions join_options_from_env();

/// One rank's membership in a team at run time. All members are collective unless they say otherwise.
class Group {
 public:
  virtual ~Group() = default;
  /// Ranks and links; `rank` is mine. Not collective.
  [[nodiscard]] virtual const Team& team() const = 0;
  /// "host", "cuda". Not collective.
  [[nodiscard]] virtual std::string backend() const = 0;
  /// What the ranks' devices are: "2 x NVIDIA H200, 132 SMs". Empty: the host. The same on all ranks. Not collective.
  [[nodiscard]] virtual std::string hardware() const { return {}; }
  /// My device, as this process numbers them; 0 on the host. Not collective.
  [[nodiscard]] virtual int device() const { return 0; }
  /// A zeroed tensor in the arena, which peers can address; the same shape on every rank. Lives until `free`, at most
  /// as long as the group. Throws Error(invalid_input) with the bytes needed where the arena is too small.
  [[nodiscard]] virtual Tensor allocate(DType dtype, int64_t rows, int64_t cols) = 0;
  /// Give a tensor of `allocate` back, which no call uses any more. Not collective: its memory is reused when all ranks
  /// have done so. Throws Error(invalid_input) where no tensor of the arena starts at its data.
  virtual void free(const Tensor& tensor) = 0;
  /// Memory that callers share among the ranks themselves, PyTorch's symmetric memory say, counts as the arena: in this
  /// process byte i of rank r lies at `at[r] + i`. Each rank gives the same number of bytes. It must outlive the
  /// group's calls. Collective. Throws Error(invalid_input), the same on all ranks, where bytes differ, or overlap the
  /// arena.
  virtual void adopt(const std::vector<std::byte*>& at, int64_t bytes) = 0;
  /// The place of a tensor that peers can address, as buffers of Problem::arena must be: not empty, dense, in the arena
  /// or in adopted memory; else nothing. On GPUs a call wants the same place on all ranks. Not collective.
  [[nodiscard]] virtual std::optional<int64_t> place_of(const Tensor& tensor) const = 0;
  /// Memory for callers' tensors, the host's or my device's, undefined at first. Not collective. Throws
  /// Error(invalid_input) for a number of bytes that is negative.
  [[nodiscard]] virtual std::shared_ptr<std::byte> new_memory(int64_t bytes) const;
  /// cuda: whether a stream, as Op::run takes it, is captured, so that a call in it is part of a graph. Not collective.
  [[nodiscard]] virtual bool captures(void* /*stream*/) const { return false; }
  /// Whether the host reads and writes that memory by itself; where not, `copy` does it. Not collective.
  [[nodiscard]] virtual bool host_addresses_memory() const { return true; }
  /// Copy from or to such memory, or the host's; complete on return. Not collective. Throws Error(invalid_input) for a
  /// negative number of bytes, and for bytes from or to a null pointer.
  virtual void copy(void* to, const void* from, int64_t bytes) const;
  /// Everybody's bytes, by rank. For small things: agreement on a config, a time, a hash. As every collective: throws
  /// Error(invalid_input) on all ranks where some call another one, and names both. Op::run does not exchange anything:
  /// beside it, the others' waits end at their deadline.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  void barrier();
  /// What plans are lowered for here. The same on all ranks. Not collective.
  [[nodiscard]] virtual Target target() const;
  /// Names of what this backend cannot do in the plan, "transport = tma"; empty = all of it. Not collective.
  [[nodiscard]] virtual std::vector<std::string> unsupported(const Plan& plan) const = 0;
  /// What a user should know of how the plan runs here: a slower path and why, a step that is left out. The same on all
  /// ranks. Not collective.
  [[nodiscard]] virtual std::vector<std::string> remarks(const Plan& /*plan*/) const { return {}; }
  /// Carve workspace, build tables. The plan must be validated; one that is not lowered is lowered for `target`. Throws
  /// Error(invalid_input) where it is lowered for another one, or ranks hold different plans.
  [[nodiscard]] virtual std::unique_ptr<Program> load(const Plan& plan) = 0;
  /// Tell all ranks that this one has failed with `error`: every wait ends, and the group is broken. Not collective.
  virtual void fail_with(const Error& error) = 0;
};

/// Join the team under `backend`. Throws Error(timeout) that names the silent ranks.
[[nodiscard]] std::unique_ptr<Group> join(const std::string& backend, const JoinOptions& options);

struct LaunchOptions {
  std::string backend = "host";
  bool threads = false;  ///< ranks as threads of this process instead of processes
  int64_t arena_bytes = JoinOptions{}.arena_bytes;
  double timeout_s = JoinOptions{}.timeout_s;
  CallOrder order = CallOrder::any;  ///< as JoinOptions
  int sms = 0;                       ///< as JoinOptions
};

/// Start `num_ranks` ranks on this host and run `body` on each; returns when all have ended. Throws the
/// Error of the lowest rank that failed by itself, else Error(rank_lost) naming what killed a rank, or the rank whose
/// process ended before its `body` returned. Another exception of a `body` becomes Error(internal), "rank 1: " and its
/// text. Throws Error(invalid_input) for a number of ranks, a timeout, SMs or a `body` that is none.
/// With processes, what `body` changes in memory stays in its process; they are forked from the calling thread, so
/// call it before other threads exist and before OpenMP has run on more than one. A process that `body` forks is not a
/// rank: its end means nothing to the group, and launch does not wait for it.
void launch(int num_ranks, const LaunchOptions& options, const std::function<void(Group&)>& body);

}  // namespace tilewire
