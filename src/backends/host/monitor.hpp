// A thread that notices dead peers at once, and answers late connections to rank 0's socket.
// Each process that is a rank has one, owned by its group.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/host/rendezvous.hpp"
#include "core/descriptor.hpp"

namespace tilewire::host {

class Monitor {
 public:
  /// Watch the processes of all ranks but `rank`. `door` is rank 0's listening socket; it may be closed. Throws
  /// Error(unsupported) if the system does not allow it.
  Monitor(std::shared_ptr<Segment> segment, int rank, Descriptor door, std::string job);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  ~Monitor();

 private:
  struct Watched {
    Descriptor process;
    int rank = 0;
  };
  static constexpr uint32_t kStop = 0xFFFFFFFF;
  static constexpr uint32_t kDoor = 0xFFFFFFFE;
  void watch();
  /// Add or remove `source` as a source of events with this number; `operation` as in epoll_ctl.
  [[nodiscard]] SystemCall listen_to(const Descriptor& source, uint32_t event, int operation) const;
  [[nodiscard]] Descriptor open_process(int rank, int pid) const;
  void report_death(int rank) const;
  /// Whether a rank has left, so that the job is ending.
  [[nodiscard]] bool somebody_left() const;

  pid_t owner_;  ///< the process that started the thread
  int rank_;
  std::shared_ptr<Segment> segment_;
  Descriptor door_;
  std::string job_;
  Descriptor stop_;
  Descriptor events_;  ///< epoll; events are indices in peers_, kStop or kDoor
  std::vector<Watched> peers_;
  std::thread thread_;
};

}  // namespace tilewire::host
