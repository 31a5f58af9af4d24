// Teams of the ranks of PyTorch's process groups, and the operators that each keeps by problem.
// Used by torch/operators.cpp.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "bindings.hpp"
#include "torch/tensors.hpp"

namespace tilewire::python {

/// How teams make and keep operators.
struct TorchSettings {
  Tuning tuning = Tuning::off;  ///< how new ones choose
  size_t most_ops = 256;        ///< that a team keeps beside those that graphs may replay: those used last
};

/// The ranks of a process group on one kind of device, and their operators.
class TorchTeam {
 public:
  TorchTeam(nb::object process_group, std::shared_ptr<SharedGroup> group)
      : process_group_(std::move(process_group)), group_(std::move(group)) {}
  TorchTeam(const TorchTeam&) = delete;
  TorchTeam& operator=(const TorchTeam&) = delete;
  ~TorchTeam();

  /// Whether it is of this process group, and not of another one of that name.
  [[nodiscard]] bool is_of(nb::handle process_group) const { return process_group_.is(process_group); }
  [[nodiscard]] int num_ranks() const { return group_->group->team().num_ranks; }
  /// One call of the problem's operator, which is made at its first: collective. What lies in the arena of x and the
  /// results is used there. Throws as make_op and Op::run do, and Error(unsupported) where it is new inside a capture.
  void run(const TorchShim& shim, Problem problem, const TorchSettings& settings, std::span<const Tensor> inputs,
           std::span<const Tensor> outputs, void* stream);
  /// Throw what is known by now to have failed, of calls and of graphs' replays.
  void check() const;
  /// Problems and schedules of the operators that are kept, the last used first: "all_reduce 3 x 24 x 0 fused".
  [[nodiscard]] std::vector<std::string> kept() const;

 private:
  struct Kept {
    Problem problem;
    Tuning tuning;
    Op op;
    std::string name;       ///< of its ranges in profiles: operator and schedule
    bool captured = false;  ///< graphs may replay it
  };
  using Place = std::list<Kept>::iterator;

  Kept& find_or_make(const Problem& problem, const TorchSettings& settings, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs, bool captures);
  void make_room(size_t most_ops);

  nb::object process_group_;
  std::shared_ptr<SharedGroup> group_;
  std::list<Kept> ops_{};  ///< those used last come first
  std::unordered_multimap<size_t, Place> places_{};
};

/// The teams of this process.
class TorchTeams {
 public:
  /// `resolve`: the process group of a name; `meet`: the tilewire._core.Group of a process group's ranks on GPUs or
  /// CPUs, and the device's number.
  TorchTeams(nb::object resolve, nb::object meet) : resolve_(std::move(resolve)), meet_(std::move(meet)) {}

  /// The team of a group's ranks for tensors on a device. Collective at its first use.
  [[nodiscard]] std::shared_ptr<TorchTeam> find(const std::string& group, bool on_gpu, int32_t index);
  /// TorchTeam::kept of a team, or nothing where none has met. With the GIL.
  [[nodiscard]] std::vector<std::string> kept(const std::string& group, bool on_gpu, int32_t index) const;
  /// TorchTeam::check of all of them. With the GIL.
  void check() const;
  /// Forget all of them. With the GIL.
  void clear() { const auto old = std::exchange(teams_, {}); }
  [[nodiscard]] TorchSettings& settings() { return settings_; }

 private:
  struct Key {
    std::string group;
    bool on_gpu;
    int32_t index;
    auto operator<=>(const Key&) const = default;
  };
  nb::object resolve_;
  nb::object meet_;
  std::map<Key, std::shared_ptr<TorchTeam>> teams_{};  ///< touched with the GIL alone
  TorchSettings settings_{};
};

}  // namespace tilewire::python
