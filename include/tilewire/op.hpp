// An operator ready to run: problem, chosen config, proven plan, loaded program.
// The call that most users make; see the program at the head of tilewire.hpp.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tilewire/config.hpp"
#include "tilewire/error.hpp"
#include "tilewire/group.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/trace.hpp"

namespace tilewire {

struct RunOptions;  // spi/backend.hpp

struct OpOptions {
  /// Prove the plan first. Default: in debug builds of the library.
  std::optional<bool> check{};
  bool trace = false;        ///< record every call, for last_trace and gather_trace
  int64_t max_delay_us = 0;  ///< for tests of skewed ranks, host: sleep for a random time up to this before each task
  Tuning tuning = Tuning::full;  ///< where no config is given
  std::string tuner_file{};      ///< where winners are remembered; empty = env TILEWIRE_TUNER_FILE, then the default
};

/// Made by make_op. Move only. Its group must outlive it.
class Op {
 public:
  Op(Op&&) noexcept;
  Op& operator=(Op&&) noexcept;
  ~Op();

  /// One call, collective. Throws Error as Program::run does; and Error(invalid_input), before anything
  /// runs, where a tensor's shape or type is not that of its buffer, its data is not aligned to its elements, its rows
  /// are so far apart that it spans more than 2^48 bytes, or an output overlaps another tensor of the call: nothing is
  /// done in place, inputs may overlap. Tensors of equal row strides are compared by element, others by all that lies
  /// from end to end.
  /// cuda: the call is enqueued in `stream`, a cudaStream_t with the meaning that CUDA gives it: 0 and 1 are the legacy
  /// default stream, which is also PyTorch's, 2 is the thread's own default stream, others are of cudaStreamCreate and
  /// the like, and may be captured (docs/cuda.md). The call follows the work that is in the stream, and `run` returns
  /// without waiting; a later failure is thrown by the next call, or returned by last_status. Where ranks share a GPU,
  /// 0 and 1 are Error(invalid_input), as they are one stream for all ranks, and the call is complete on return.
  /// host: the stream has no meaning, and the call is complete on return.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream = nullptr);
  /// The same, complete on return. cuda: in a stream of the group's own, after the work of the legacy default
  /// stream, cudaMemcpy's copies included, and so of streams without cudaStreamNonBlocking, for which that stream
  /// waits. It waits for no other stream; nor for any where ranks share a GPU, or while a stream without
  /// cudaStreamNonBlocking is captured: there, call cudaStreamSynchronize before it.
  void run_and_wait(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

  /// Return when the calls of the group that `run` has enqueued have ended, eager ones and, with CallOrder::any and
  /// where ranks share no GPU, replays of graphs that have begun; host: they have. Throws what failed.
  void wait();

  /// As it runs: lowered for the group's target. Traces number its lanes and tasks. (As the schedule made it:
  /// make_plan of `problem` and `config`.)
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Bytes of workspace that the operator uses on this rank: in the arena, signals not counted, and local. On GPUs
  /// operators of a group share all local workspace, and of the arena what their plans call so (Buffer::shared).
  struct Workspace {
    int64_t symmetric = 0;
    int64_t local = 0;
  };
  [[nodiscard]] Workspace workspace() const { return {symmetric_bytes(plan_), local_bytes(plan_)}; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Config& config() const { return config_; }
  /// Which schedule runs, why it was chosen, what else was considered, and what each pass of lowering did.
  [[nodiscard]] const std::string& explain() const { return explanation_; }
  /// The Error of the last call, if it failed; of calls that are under way or replayed, if they have failed by now.
  [[nodiscard]] const std::optional<Error>& last_status() const;
  /// This rank's events of the last call. Without OpOptions::trace there are none.
  [[nodiscard]] Trace last_trace() const;
  /// All ranks' events of the last call, on every rank; none without OpOptions::trace. Collective.
  [[nodiscard]] Trace gather_trace();

 private:
  friend Op make_op(Group&, const Problem&, const std::optional<Config>&, const OpOptions&);
  friend Op make_op(Group&, const Plan&, const OpOptions&);
  friend Op make_op_from_text(Group&, const std::string&, const std::string&, const OpOptions&);
  Op(Group& group, Plan plan, const std::string& why, const OpOptions& options);
  void run_with(std::span<const Tensor> inputs, std::span<const Tensor> outputs, const RunOptions& options);

  Group* group_ = nullptr;
  Plan plan_;
  Problem problem_{};
  Config config_{};
  std::string explanation_{};
  OpOptions options_;
  mutable std::optional<Error> status_{};
  std::unique_ptr<Program> program_;
};

/// Collective. Without a config the tuner measures the candidates once and remembers the winner (OpOptions::tuning). A
/// schedule's own choice, unmeasured: default_config(name, problem, group.team()).
/// Throws, before anything is allocated: Error(invalid_input) for a broken rule or ranks that ask for
/// different things (both are named), Error(unsupported), Error(refused_plan).
[[nodiscard]] Op make_op(Group& group, const Problem& problem, const std::optional<Config>& config = std::nullopt,
                         const OpOptions& options = {});

/// The same for a problem in JSON and a config in text: "auto", "auto_quick" and "auto_off" with that tuning, the name
/// of a schedule for its own choice, or JSON.
/// Where the text of one rank is malformed all ranks throw its Error(invalid_input). Collective.
[[nodiscard]] Op make_op_from_text(Group& group, const std::string& problem, const std::string& config = "auto",
                                   const OpOptions& options = {});

/// Run a plan as it is, from a file or built by hand: validated and always checked. Collective.
[[nodiscard]] Op make_op(Group& group, const Plan& plan, const OpOptions& options = {});

}  // namespace tilewire
