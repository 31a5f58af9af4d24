// A thread that notices dead peers at once and answers late knocks at the door.
// One in every process that is a rank; owned by its group.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/host/rendezvous.hpp"

namespace tilewire::host {

class Monitor {
 public:
  /// Watch the processes of all ranks but `rank`. `door` may be closed.
  Monitor(std::shared_ptr<Segment> segment, int rank, Descriptor door, std::string job);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  ~Monitor();

 private:
  struct Watched {
    Descriptor process;
    int rank = 0;
  };
  void watch();
  void report_death(int rank) const;
  /// Whether the job is ending.
  [[nodiscard]] bool somebody_left() const;

  std::shared_ptr<Segment> segment_;
  Descriptor door_;
  std::string job_;
  Descriptor stop_;
  std::vector<Watched> peers_;
  std::thread thread_;
};

}  // namespace tilewire::host
