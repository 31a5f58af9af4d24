// Streams beside the callers': for copies, calls of libraries, and kernels that start late. Owned by a group, whose
// calls follow each other, so that all its operators use the same ones; captures have some of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/tables/stream_work.hpp"

namespace tilewire::cuda {

/// `copied` comes after each piece of work that the notifier tells.
struct SideStream {
  Stream stream;
  Event end;
  Stream notifier;
  Event copied;
};

/// What one call uses.
struct CallStreams {
  const Event* fork = nullptr;
  std::vector<const SideStream*> all{};  ///< one for each of its uses
};

class SideStreams {
 public:
  /// `capture`: capture_of the caller's stream. Good until the next call of a program of the group.
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
