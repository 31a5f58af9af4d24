// One channel of a device's memory, request by request: two streams, arbitration, a DRAM queue, bank groups.
// Used by the engine, costs.cpp (Access) and tests.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "backends/sim/time.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::sim {

/// Who asks a memory controller: a kernel's tiles, or what moves and sums between devices.
enum class Stream : uint8_t { compute, communication };
enum class AccessKind : uint8_t { read, write, update };

/// Bytes of one device's memory that a task reads or writes at once.
struct Access {
  int device = 0;
  Stream stream = Stream::compute;
  AccessKind kind = AccessKind::read;
  double bytes = 0;
  double latency_ns = 0;  ///< from the last request's end until whoever asked goes on
};

/// Requests go from the streams' queues, which are as long as they need to be, to the DRAM queue as arbitration says,
/// and from there the oldest whose bank group is free goes to the bus. Blocks of 256 bytes are spread over bank groups
/// by a fixed pseudo-random sequence.
class ChannelController {
 public:
  ChannelController(const MemoryController& controller, double bandwidth_GBps);

  /// An access that asks for its requests now. Where its bytes are less than a request, with what was left over before,
  /// there is nothing to wait for: returns false.
  bool ask(const Access& access, int owner, Time now);
  /// When the next request goes to the bus; kNever where none waits.
  [[nodiscard]] Time next() const { return next_; }
  struct Done {
    int owner = -1;  ///< of the access that is complete now; -1: none is
    Time time = 0;   ///< when that has come, or else when the request's data have moved
  };
  /// Send one request to the bus.
  Done step();
  /// The kernel has ended: communication is no longer held back (T3, section 4.5).
  void drain() { draining_ = true; }

  /// The threshold that arbitration uses, found while only the kernel asked; nothing = none.
  [[nodiscard]] std::optional<int> threshold() const { return threshold_; }
  [[nodiscard]] double busy_ns() const { return busy_ns_; }

  /// From now on, note when bytes go to the bus.
  void note_traffic(double interval_ns);
  /// What was noted. Bytes that were asked for and are less than a request count in the last interval.
  [[nodiscard]] std::vector<IntervalLoad> traffic() const;

 private:
  struct Asked {
    int owner = -1;
    AccessKind kind = AccessKind::read;
    double latency_ns = 0;
    int64_t to_pass_on = 0;  ///< requests
    int64_t open = 0;        ///< requests that have not been served
    uint32_t first_block = 0;
    Stream stream = Stream::compute;
  };
  struct Request {
    int access;  ///< index in accesses_
    int group;
  };

  void pass_on();
  void pass_on_from(Stream stream);
  [[nodiscard]] std::optional<Stream> next_stream() const;
  void measure_intensity();
  void plan_next();
  void add_traffic(IntervalLoad& load, Stream stream, AccessKind kind, double bytes) const;
  /// Atomics read what they write; an op-and-store is one command.
  [[nodiscard]] bool moves_twice(AccessKind kind) const {
    return kind == AccessKind::update && config_.near_memory == NearMemory::atomics;
  }

  MemoryController config_;
  Time bus_time_;                   ///< of a request
  Time patience_;                   ///< after which communication is passed on
  std::array<Time, 3> group_time_;  ///< by kind
  double request_share_;            ///< bytes of all channels that a request here stands for
  std::vector<Asked> accesses_;
  std::vector<int> free_;
  std::array<std::deque<int>, 2> asked_;  ///< accesses with requests to pass on, by stream
  std::vector<Request> queue_;            ///< DRAM queue, oldest first
  std::vector<Time> group_free_;
  std::array<std::array<double, 3>, 2> left_over_{};
  Time now_ = 0;
  Time bus_free_ = 0;
  Time next_ = kNever;
  Stream turn_ = Stream::compute;
  Time last_communication_ = 0;
  uint32_t blocks_ = 0;
  std::optional<int> threshold_;
  bool measured_ = false;
  double occupancy_ = 0;  ///< sum over the times that only the kernel asked, after passing on
  int64_t num_measured_ = 0;
  bool draining_ = false;
  double busy_ns_ = 0;
  Time interval_ = 0;  ///< of traffic_; 0: not noted
  std::vector<IntervalLoad> traffic_;
};

}  // namespace tilewire::sim
