// An operator that is ready to run: problem, config, proven plan, loaded program.
// Called by most programs; tilewire.hpp opens with an example.
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
  /// Prove the plan before it runs. Default: only in debug builds of the library.
  std::optional<bool> check{};
  bool trace = false;            ///< record every call, for last_trace and gather_trace
  int64_t max_delay_us = 0;      ///< for tests of skewed ranks, host only: random sleep up to this before each task
  Tuning tuning = Tuning::full;  ///< if no config is given
  std::string tuner_file{};      ///< file of the winners; empty = TILEWIRE_TUNER_FILE, then the default file
};

/// Made by make_op. Move only. The group must outlive it.
class Op {
 public:
  Op(Op&&) noexcept;
  Op& operator=(Op&&) noexcept;
  ~Op();

  /// Make one call. Collective. Throws the Errors of Program::run. Throws Error(invalid_input), before anything runs,
  /// if a tensor's shape or type is not that of its buffer, if its data is not aligned to its elements, if it spans
  /// more than 2^48 bytes, or if an output overlaps another tensor of the call. One pair may be the same memory: the
  /// epilogue's residual and the output of its shape, unless the plan writes it too early (docs/operators.md). Inputs
  /// may overlap. Tensors of equal row strides are compared element by element, all other pairs by their whole spans.
  /// cuda: the call is enqueued in `stream`, a cudaStream_t with CUDA's meaning: 0 and 1 are the legacy default stream,
  /// which PyTorch uses by default; 2 is the per-thread default stream; any other value is a stream that the caller
  /// created. Streams may be captured (docs/cuda.md). The call runs after the work in the stream, and `run` returns
  /// without waiting. The next call throws a later failure, and last_status returns it. If ranks share a GPU, 0 and 1
  /// are Error(invalid_input), because they are one stream for all ranks, and the call is complete on return.
  /// host: `stream` is ignored, and the call is complete on return.
  void run(std::span<const Tensor> inputs, std::span<const Tensor> outputs, void* stream = nullptr);
  /// As `run`, but complete on return. cuda: the call runs in a stream of the group, after the work of the legacy
  /// default stream, which includes cudaMemcpy and the work of streams without cudaStreamNonBlocking. It waits for no
  /// other stream. It waits for no stream at all if ranks share a GPU, or while a stream without cudaStreamNonBlocking
  /// is being captured; then call cudaStreamSynchronize first.
  void run_and_wait(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

  /// Return when the calls that `run` enqueued on the group have ended: eager calls, and replays of graphs that have
  /// begun. (Replays only with CallOrder::any, and if no ranks share a GPU.) host: all calls have already ended. Throws
  /// the Error of a failed call.
  void wait();

  /// The plan that runs: lowered for the group's target. Traces refer to its lanes and tasks. (make_plan of `problem`
  /// and `config` returns the plan before lowering.)
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Bytes of workspace that the operator uses on this rank: in the arena, without signals, and local. On GPUs all
  /// operators of a group use the same local workspace and the same `shared` workspace (Buffer::shared).
  struct Workspace {
    int64_t symmetric = 0;
    int64_t local = 0;
  };
  [[nodiscard]] Workspace workspace() const { return {symmetric_bytes(plan_), local_bytes(plan_)}; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Config& config() const { return config_; }
  /// The schedule that runs, the reason for its choice, the other candidates, and the note of each lowering pass.
  [[nodiscard]] const std::string& explain() const { return explanation_; }
  /// The Error of the last call if it failed, or of a call or replay under way that has failed by now.
  [[nodiscard]] const std::optional<Error>& last_status() const;
  /// This rank's events of the last call; none without OpOptions::trace.
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

/// Make an operator. Collective. Without a config the tuner measures the candidates once and remembers the winner
/// (OpOptions::tuning). For a schedule's first candidate, unmeasured, pass default_config(name, problem, group.team()).
/// Throws, before anything is allocated: Error(invalid_input) for a broken rule, or if ranks make different requests
/// (it names both); Error(unsupported); Error(refused_plan).
[[nodiscard]] Op make_op(Group& group, const Problem& problem, const std::optional<Config>& config = std::nullopt,
                         const OpOptions& options = {});

/// The same from text. `problem` is JSON. `config` is "auto", "auto_quick" or "auto_off" (Tuning), the name of a
/// schedule (its first candidate, unmeasured), or JSON. If the text of one rank is malformed, all ranks throw its
/// Error(invalid_input). Collective.
[[nodiscard]] Op make_op_from_text(Group& group, const std::string& problem, const std::string& config = "auto",
                                   const OpOptions& options = {});

/// Run a given plan, from a file or built by hand. It is validated and always checked. Collective.
[[nodiscard]] Op make_op(Group& group, const Plan& plan, const OpOptions& options = {});

}  // namespace tilewire
