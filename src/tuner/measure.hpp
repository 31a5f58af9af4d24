// Times of programs on a group, and values that all ranks agree on.
// Called by the tuner and the bench.
#pragma once

#include <string>
#include <vector>

#include "operators/tensors.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::tuner {

/// The largest of all ranks' values: what every rank decides by. Collective.
[[nodiscard]] double largest(Group& group, double mine);
/// The text of the lowest rank that has any. Collective.
[[nodiscard]] std::string first_text(Group& group, const std::string& mine);
/// A time, and whose clock it was.
struct CallTime {
  double us = 0;
  bool by_device = false;
  double enqueue_us = 0;  ///< by the host's clock; 0 where calls are not enqueued
};

/// Microseconds that the slowest rank took for one call: by the devices' clocks for one of a burst, or by the host's
/// for a single one. Collective.
[[nodiscard]] CallTime time_calls(Group& group, Program& program, const RankTensors& tensors, const Burst& burst);
/// Calls in a row that are timed together on a device: some ms of work. NOTE: after some 20 ms of work without a pause
/// a GPU is at the limit of its power, and slower.
[[nodiscard]] int calls_in_burst(double call_us);
/// Let devices rest before a burst.
void pause_before_burst();
/// Most rows of a problem whose calls are always replayed from graphs, as in bench/peers.py.
inline constexpr int64_t kMostGraphRows = 512;
/// Whether calls of a problem with so many rows are so short that the host's enqueuing would be measured; `us` is what
/// the fastest took when it was enqueued.
[[nodiscard]] bool wants_graphs(int64_t rows, double us);
/// The same for the tuner: a few calls, or replays of one, with cold caches on devices. Collective.
[[nodiscard]] double time_call(Group& group, Program& program, const RankTensors& tensors, bool graph);
[[nodiscard]] double median(std::vector<double> values);

}  // namespace tilewire::tuner
