// Teams of the ranks of PyTorch's process groups. Each team caches its operators by problem.
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

/// How teams make and cache operators.
struct TorchSettings {
  Tuning tuning = Tuning::off;    ///< how new operators choose their config
  bool constant_weights = false;  ///< no work before a call writes b (Problem::constant)
  size_t most_ops = 256;  ///< operators that a team caches, without those in graphs; the least recently used are freed
};

/// The ranks of a process group on one kind of device, and their operators.
class TorchTeam {
 public:
  TorchTeam(nb::object process_group, std::shared_ptr<SharedGroup> group)
      : process_group_(std::move(process_group)), group_(std::move(group)) {}
  TorchTeam(const TorchTeam&) = delete;
  TorchTeam& operator=(const TorchTeam&) = delete;
  ~TorchTeam();

  /// Whether the team is of this process group object; a later group may have the same name.
  [[nodiscard]] bool is_of(nb::handle process_group) const { return process_group_.is(process_group); }
  [[nodiscard]] int num_ranks() const { return group_->group->team().num_ranks; }
  [[nodiscard]] int rank() const { return group_->group->team().rank; }
  /// Make one call of the problem's operator; the first call makes the operator, which is collective. If x or a result
  /// lies in the arena, the operator uses it in place. Throws the Errors of make_op and Op::run, and Error(unsupported)
  /// if a new operator would be made during a capture.
  void run(const TorchShim& shim, Problem problem, const TorchSettings& settings, std::span<const Tensor> inputs,
           std::span<const Tensor> outputs, void* stream);
  /// Throw the Error of a call or a graph replay that has failed by now.
  void check() const;
  /// Texts of the cached operators, the most recently used first: "all_reduce 3 x 24 x 0 fused".
  [[nodiscard]] std::vector<std::string> kept() const;

 private:
  struct Kept {
    Problem problem;
    Tuning tuning;
    Op op;
    std::string name;       ///< name of the range in profiles: operator and schedule
    bool captured = false;  ///< a graph may replay it
  };
  using Place = std::list<Kept>::iterator;

  Kept& find_or_make(const Problem& problem, const TorchSettings& settings, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs, bool captures);
  void make_room(size_t most_ops);

  nb::object process_group_;
  std::shared_ptr<SharedGroup> group_;
  std::list<Kept> ops_{};  ///< the most recently used first
  std::unordered_multimap<size_t, Place> places_{};
};

/// The teams of this process.
class TorchTeams {
 public:
  /// `resolve` returns the process group of a name. `meet` returns the tilewire._core.Group of a process group's ranks,
  /// given whether they are on GPUs and the device number.
  TorchTeams(nb::object resolve, nb::object meet) : resolve_(std::move(resolve)), meet_(std::move(meet)) {}

  /// The team of a group's ranks for tensors on a device. Collective at its first use.
  [[nodiscard]] std::shared_ptr<TorchTeam> find(const std::string& group, bool on_gpu, int32_t index);
  /// TorchTeam::kept of a team; empty if the ranks have not met. Needs the GIL.
  [[nodiscard]] std::vector<std::string> kept(const std::string& group, bool on_gpu, int32_t index) const;
  /// TorchTeam::check of all teams. Needs the GIL.
  void check() const;
  /// Remove all teams. Needs the GIL.
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
  std::map<Key, std::shared_ptr<TorchTeam>> teams_{};  ///< guarded by the GIL
  TorchSettings settings_{};
};

}  // namespace tilewire::python
