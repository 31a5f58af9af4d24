// The cost of a task on a machine: phases with a duration, and shares of compute units, memories and links.
// Used by the engine.
#pragma once

#include <optional>
#include <vector>

#include "backends/sim/block_cache.hpp"
#include "backends/sim/cache.hpp"
#include "backends/sim/flows.hpp"
#include "backends/sim/memory_controller.hpp"
#include "backends/sim/network.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire::sim {

/// One phase: a delay, and then a flow and memory accesses at the same time. The flow and the accesses are repeated
/// `times` times.
struct Phase {
  double delay_ns = 0;
  double work_ns = 0;
  std::vector<Demand> demands{};
  std::vector<Access> accesses{};
  int64_t times = 1;
  int link = -1;                   ///< the link that this message holds alone, in order of arrival; -1 = none
  int64_t first_step = kNoInputs;  ///< each repetition reads Cost::inputs of one step, from this step on

  static constexpr int64_t kNoInputs = -1;
};

/// The reads of one operand in the K steps of a mainloop.
struct StepInput {
  int first_block = 0;  ///< in the cache; one block per step
  int64_t bytes = 0;    ///< sum over all steps
};

struct Cost {
  std::vector<Phase> phases{};
  std::vector<StepInput> inputs{};  ///< only with a memory controller
  int64_t steps = 1;
  bool stores_last = false;       ///< the last phase runs while the worker takes its next task
  bool pulls = false;             ///< the rank reads from peers
  double latency_ns = 0;          ///< from the end of the last phase until all data have arrived
  std::vector<Access> landing{};  ///< memory accesses at the destination, before signals are posted
};

/// Numbers of resources: the compute units of each device, then the memory of each device, then each link.
class Costs {
 public:
  Costs(const Plan& plan, const Machine& machine);

  /// The cost of a task. Call it when the task begins, in order of time, because it changes the caches and counts
  /// bytes.
  [[nodiscard]] Cost of(const Task& task, const Lane& lane);
  /// The bytes that a step of a tile's mainloop reads from the rank's own memory, because the cache does not hold them.
  [[nodiscard]] Access inputs_of_step(const Cost& cost, int rank, int64_t step);
  /// A tile's mainloop has ended: release its strips in the cache.
  void release_inputs(const Task& task, const Lane& lane);

  [[nodiscard]] const Network& network() const { return network_; }
  /// By resource, the argument of Flows.
  [[nodiscard]] std::vector<double> when_meeting() const;
  /// Latency of the route from one rank to another.
  [[nodiscard]] double latency_ns(int from, int to) const { return path(from, to).latency_ns; }
  /// Bytes of links and memories so far; MemoryLoad::busy is not set.
  [[nodiscard]] const std::vector<int64_t>& link_bytes() const { return link_bytes_; }
  [[nodiscard]] const std::vector<MemoryLoad>& memory() const { return memory_; }
  /// By device: time for which products took all of its compute units, in ns.
  [[nodiscard]] const std::vector<double>& units_ns() const { return units_ns_; }
  [[nodiscard]] int memory_resource(int device) const { return num_devices_ + device; }
  [[nodiscard]] int link_resource(int edge) const { return 2 * num_devices_ + edge; }

 private:
  class Load;
  struct Path {
    std::vector<int> edges;
    double latency_ns = 0;
  };

  [[nodiscard]] int64_t bytes_of_region(const Region& region) const;
  [[nodiscard]] const Path& path(int from, int to) const;
  [[nodiscard]] double flops_per_ns(const Task& task) const;
  [[nodiscard]] double tile_efficiency(const GemmParams& gemm) const;
  [[nodiscard]] double issue_ns(const Task& task) const;
  /// Add the phases of a copy or sum in `steps` steps: the data of each step are read during the step before. Without a
  /// memory controller there is one phase.
  static void add_steps(Cost& cost, const Load& load, double delay_ns, int64_t steps);
  void add_inner_loop(Cost& cost, const Load& load, const Task& task, int rank);
  [[nodiscard]] int64_t steps_of(const Task& task) const;
  void cache_results(const Task& task, int rank);
  Cost tile(const Task& task, const Lane& lane);
  Cost copy(const Task& task, const Lane& lane);
  Cost hop_by_hop(const Task& task, const Lane& lane);
  Cost moved_by_units(const Task& task, const Lane& lane);
  static Phase all_along(const Load& load, double delay_ns);
  Cost library_gemm(const Task& task, const Lane& lane);
  Cost library_collective(const Task& task, const Lane& lane);
  void read(Load& load, const Region& region, int rank, int64_t bytes, bool by_units);
  void write(Load& load, const Write& write, int rank, bool by_units);
  void cross(Load& load, int edge, int64_t bytes, double efficiency, int sender);
  void send(Load& load, int from, int to, int64_t bytes, double efficiency, int sender);

  const Plan& plan_;
  const Machine& machine_;
  Network network_;
  int num_devices_;
  mutable int64_t tile_m_ = 0, tile_n_ = 0;  ///< tile shape of the last lookup of tile_efficiency
  mutable double tile_efficiency_ = 1;
  bool shares_units_ = true;                                     ///< tiles share the units with other products
  Stream stream_ = Stream::compute;                              ///< of the current task
  mutable std::vector<std::vector<std::optional<Path>>> paths_;  ///< [from][to]; filled on first use
  std::vector<Cache> caches_;
  std::vector<BlockCache> block_caches_;  ///< used instead with a memory controller
  std::vector<int64_t> link_bytes_;
  std::vector<MemoryLoad> memory_;
  std::vector<double> units_ns_;
};

}  // namespace tilewire::sim
