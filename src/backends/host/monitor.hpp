// A thread that notices dead peers at once and answers late knocks at the door.
// One in every process that is a rank; owned by its group.
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
  /// Watch the processes of all ranks but `rank`. `door` may be closed. Throws Error(unsupported) where the system
  /// does not let it.
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
  /// Have `source` wake the thread up, with this number, or no longer; `operation` as epoll_ctl's.
  [[nodiscard]] SystemCall listen_to(const Descriptor& source, uint32_t event, int operation) const;
  [[nodiscard]] Descriptor open_process(int rank, int pid) const;
  void report_death(int rank) const;
  /// Whether the job is ending.
  [[nodiscard]] bool somebody_left() const;

  pid_t owner_;  ///< the process whose thread it is
  int rank_;
  std::shared_ptr<Segment> segment_;
  Descriptor door_;
  std::string job_;
  Descriptor stop_;
  Descriptor events_;  ///< wakes the thread up: a peer by its number in peers_, or kStop, kDoor
  std::vector<Watched> peers_;
  std::thread thread_;
};

}  // namespace tilewire::host
