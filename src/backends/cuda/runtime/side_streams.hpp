// Streams in addition to the callers': for copies, library calls, and kernels that start late. Owned by a group, whose
// calls
// run one after another, so that all of its operators use the same streams; captures have their own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/tables/stream_work.hpp"

namespace tilewire::cuda {

/// `copied` is recorded after each copy whose completion the notify stream signals.
struct SideStream {
  Stream stream;
  Event end;
  Stream notifier;
  Event copied;
};

/// The streams of one call.
struct CallStreams {
  const Event* fork = nullptr;
  std::vector<const SideStream*> all{};  ///< one for each StreamUse
};

class SideStreams {
 public:
  /// `capture`: capture_of the caller's stream. Valid until the next call of a program of the group.
  [[nodiscard]] CallStreams of_call(uint64_t capture, const std::vector<StreamUse>& uses);

 private:
  struct Set {
    uint64_t capture = 0;
    Event fork;
    std::vector<std::unique_ptr<SideStream>> urgent;
    std::vector<std::unique_ptr<SideStream>> patient;
  };
  Set& set_of(uint64_t capture);

  std::vector<std::unique_ptr<Set>> sets_;
};

}  // namespace tilewire::cuda
