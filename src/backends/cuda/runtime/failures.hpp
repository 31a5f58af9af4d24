// What kernels of a rank say when they give up, in words.
// One in every CudaGroup; programs enlist what they launch, programs and the watch of the group ask.
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
  /// Makes the Error of a wait that failed in one's own launches.
  using Describe = std::function<Error(const WaitFailure&)>;

  /// `report` is where kernels write; it lives as long as this does.
  explicit Failures(const WaitFailure* report) : report_(report) {}
  /// Enlist a launcher. Returns its WaitWatch::owner.
  [[nodiscard]] uint32_t add(Describe describe);
  /// When none of its kernels runs any more. What they have reported is kept.
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
