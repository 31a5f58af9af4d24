// Costs of library calls: a whole GEMM in waves of tiles, one rank's part of a collective.
// Called by costs.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/sim/load.hpp"
#include "core/ceil_div.hpp"

namespace tilewire::sim {
namespace {

struct TileShape {
  int64_t m;
  int64_t n;
};

// Tile shapes among which the library chooses.
constexpr TileShape kLibraryTiles[] = {{256, 128}, {128, 256}, {128, 192}, {128, 160},
                                       {128, 128}, {128, 64},  {64, 256},  {64, 128}};

// Bytes of A and B from memory. The tiles of a wave form a block, as square as possible, and share its rows and
// columns.
double input_bytes(Shape result, int64_t depth, TileShape tile, int64_t at_once, int64_t element_bytes) {
  const auto rows = static_cast<double>(ceil_div(result.rows, tile.m));
  const auto cols = static_cast<double>(ceil_div(result.cols, tile.n));
  const double wave = std::min(static_cast<double>(at_once), rows * cols);
  const double high =
      std::min(rows, std::max(1.0, std::sqrt(wave * static_cast<double>(tile.n) / static_cast<double>(tile.m))));
  const double wide = std::max(1.0, wave / high);
  const double strips = rows * cols / wave * (high * static_cast<double>(tile.m) + wide * static_cast<double>(tile.n));
  const double once = static_cast<double>(result.rows + result.cols);
  return std::max(strips, once) * static_cast<double>(depth * element_bytes);
}

}  // namespace

// A phase whose writes are spread over its whole time.
Phase Costs::all_along(const Load& load, double delay_ns) {
  Phase phase = load.phase(delay_ns);
  phase.accesses.insert(phase.accesses.end(), load.landing().begin(), load.landing().end());
  return phase;
}

Cost Costs::library_gemm(const Task& task, const Lane& lane) {
  const Shape shape = result_shape(task);
  const int64_t depth = depth_of(task);
  const double rate = flops_per_ns(task) * machine_.overheads.library_efficiency;
  double best_ns = std::numeric_limits<double>::infinity();
  TileShape best{};
  for (const TileShape tile : kLibraryTiles) {
    const int64_t tiles = ceil_div(shape.rows, tile.m) * ceil_div(shape.cols, tile.n);
    const double tile_ns = 2.0 * static_cast<double>(tile.m * tile.n * depth) / rate + machine_.compute.tile_ns;
    const double ns = static_cast<double>(ceil_div(tiles, machine_.compute.units)) * tile_ns;
    if (ns >= best_ns) continue;
    best_ns = ns;
    best = tile;
  }
  Load load(machine_);
  load.take_at_least(best_ns);
  load.use(lane.rank, best_ns);
  units_ns_[lane.rank] += best_ns;
  if (shape.rows > 0 && shape.cols > 0) {
    const int64_t element = bytes_of(plan_.buffers[task.reads[0].buffer].dtype);
    const auto bytes = static_cast<int64_t>(input_bytes(shape, depth, best, machine_.compute.units, element));
    read(load, task.reads[1], task.reads[1].rank, bytes, false);
  }
  for (const Write& each : task.writes) write(load, each, lane.rank, false);
  return {.phases = {all_along(load, machine_.overheads.library_ns)}, .latency_ns = load.latency_ns()};
}

// NOTE: on rings and tori the messages go to the next rank, step by step; elsewhere to all peers at once. The library's
// efficiency already includes the meeting of messages, so these messages have no sender.
Cost Costs::library_collective(const Task& task, const Lane& lane) {
  const int ranks = plan_.team.num_ranks;
  const int64_t read_bytes = bytes_of_region(task.reads[0]);
  const int64_t shard = task.collective == Collective::all_gather ? read_bytes : read_bytes / ranks;
  const int64_t rounds = task.collective == Collective::all_reduce ? 2 : 1;
  Load load(machine_);
  read(load, task.reads[0], lane.rank, read_bytes, false);
  write(load, task.writes[0], lane.rank, false);
  const bool around = passes_on(machine_.links.topology);
  const double efficiency = machine_.overheads.collective_efficiency;
  for (int step = 1; step < ranks; ++step) {
    send(load, lane.rank, (lane.rank + (around ? 1 : step)) % ranks, rounds * shard, efficiency, -1);
  }
  const double latency_ns = load.latency_ns() * static_cast<double>(around ? rounds * (ranks - 1) : rounds);
  return {.phases = {all_along(load, machine_.overheads.library_ns + machine_.overheads.collective_ns)},
          .latency_ns = latency_ns};
}

}  // namespace tilewire::sim
