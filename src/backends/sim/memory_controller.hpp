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

/// The stream of a request: `compute` of GEMM tiles, `communication` of copies, sums, fills and other devices.
enum class Stream : uint8_t { compute, communication };
enum class AccessKind : uint8_t { read, write, update };

/// Bytes of one device's memory that a task reads or writes in one phase.
struct Access {
  int device = 0;
  Stream stream = Stream::compute;
  AccessKind kind = AccessKind::read;
  double bytes = 0;
  double latency_ns = 0;  ///< from the end of the last request until the task continues
};

/// The streams' queues are unbounded. Arbitration passes their requests to the DRAM queue. The oldest request there
/// whose bank group is free goes to the bus. Blocks of 256 bytes are spread over bank groups in a fixed pseudo-random
/// order.
class ChannelController {
 public:
  ChannelController(const MemoryController& controller, double bandwidth_GBps);

  /// Add the requests of an access. False if its bytes, together with the remainder of earlier accesses, make less than
  /// one request: then there is nothing to wait for.
  bool ask(const Access& access, int owner, Time now);
  /// Time at which the next request goes to the bus; kNever if there is none.
  [[nodiscard]] Time next() const { return next_; }
  struct Done {
    int owner = -1;  ///< of the access that is complete now; -1: none
    Time time = 0;   ///< time at which the access is complete, or else at which the request's data have moved
  };
  /// Send the next request to the bus.
  Done step();
  /// The kernel has ended: communication is no longer limited by the threshold (T3, section 4.5).
  void drain() { draining_ = true; }

  /// The threshold of arbitration, measured while only the kernel had requests; nothing = none.
  [[nodiscard]] std::optional<int> threshold() const { return threshold_; }
  [[nodiscard]] double busy_ns() const { return busy_ns_; }

  /// Start to record traffic in intervals.
  void note_traffic(double interval_ns);
  /// The recorded traffic. Bytes that do not make a full request yet count in the last interval.
  [[nodiscard]] std::vector<IntervalLoad> traffic() const;

 private:
  struct Asked {
    int owner = -1;
    AccessKind kind = AccessKind::read;
    double latency_ns = 0;
    int64_t to_pass_on = 0;  ///< requests not yet in the DRAM queue
    int64_t open = 0;        ///< requests not yet served
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
  /// Whether an access reads as many bytes as it writes (atomics); an op-and-store is one command.
  [[nodiscard]] bool moves_twice(AccessKind kind) const {
    return kind == AccessKind::update && config_.near_memory == NearMemory::atomics;
  }

  MemoryController config_;
  Time bus_time_;                   ///< time of one request on the bus
  Time patience_;                   ///< communication that has waited for longer passes
  std::array<Time, 3> group_time_;  ///< time of a bank group, by kind of access
  double request_share_;            ///< bytes of all channels for which one simulated request stands
  std::vector<Asked> accesses_;
  std::vector<int> free_;
  std::array<std::deque<int>, 2> asked_;  ///< by stream: accesses with requests that are not in the DRAM queue
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
  double occupancy_ = 0;  ///< sum of queue lengths while only the kernel had requests
  int64_t num_measured_ = 0;
  bool draining_ = false;
  double busy_ns_ = 0;
  Time interval_ = 0;  ///< length of an interval of traffic_; 0: not recorded
  std::vector<IntervalLoad> traffic_;
};

}  // namespace tilewire::sim
