// The Errors of a rank's kernels that gave up a wait.
// One in every CudaGroup. Programs add their launches; programs and the group's watch query the Error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "backends/cuda/kernels/tile_table.hpp"
#include "tilewire/error.hpp"

namespace tilewire::cuda {

/// Any thread may call any member.
class Failures {
 public:
  /// Makes the Error of a failed wait in the launcher's kernels.
  using Describe = std::function<Error(const WaitFailure&)>;

  /// `report`: where kernels write; it must outlive this object.
  explicit Failures(const WaitFailure* report) : report_(report) {}
  /// Add a launcher. Returns its WaitWatch::owner.
  [[nodiscard]] uint32_t add(Describe describe);
  /// Remove a launcher whose kernels have all ended. Their report is kept.
  void remove(uint32_t owner);
  /// Why a kernel of this rank gave up, if one did.
  [[nodiscard]] std::optional<Error> first();

 private:
  const WaitFailure* report_;
  std::mutex mutex_;
  uint32_t last_owner_ = 0;
  std::map<uint32_t, Describe> owners_{};
  std::optional<Error> first_{};
};

}  // namespace tilewire::cuda
