// A machine described by numbers: what the simulator executes plans on. Plain data, read from JSON with units in the
// keys; the machines that tilewire knows are src/backends/sim/machines/*.json. docs/simulator.md says what each means.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"

namespace tilewire {

/// What joins devices.
enum class Topology {
  ring,             ///< dims {n}; both ways, the shorter one is taken
  fully_connected,  ///< dims {n}; a link of its own for each ordered pair
  switched,         ///< dims {n}; each device has one link to a switch and one from it
  torus2d,          ///< dims {rows, columns}; rings along both, columns are walked first
  two_level,        ///< dims {nodes, devices of each}; fully connected inside, nodes meet at a switch
};

/// When a hop of a message starts.
enum class Forwarding {
  cut_through,        ///< at once: a message holds all links of its route together
  store_and_forward,  ///< when the hop before has ended, and its link has served those that came before
};

/// Whose requests a memory controller passes on to its DRAM queue first: a kernel's, or communication's.
enum class Arbitration {
  round_robin,          ///< in turn; the other one's where one has none
  compute_first,        ///< communication's only where the kernel has none
  communication_aware,  ///< and only while the DRAM queue holds fewer than a threshold (T3-MCA)
};

/// Who adds what is stored with WriteMode::accumulate.
enum class NearMemory {
  op_and_store,  ///< units beside the banks: one command, after which the bank group is busy for longer
  atomics,       ///< the memory side of the caches: a read and a write
};

/// Compute units of one device (SMs, CUs).
struct ComputeUnits {
  int units = 0;
  double clock_GHz = 0;
  double flops_per_clock_per_unit = 0;  ///< of 16-bit matrix instructions; a multiply-add is 2
  double fp32_speed = 0.5;              ///< of fp32 products, relative to that
  double tf32_speed = 0.5;              ///< of fp32 products that may be rounded to TF32
  double efficiency = 1;                ///< sustained in a GEMM's inner loop, relative to the peak
  double tile_ns = 0;                   ///< of each tile besides its inner loop
  /// By shape, "128x128": what tiles of the plan's own reach of `efficiency`; those that are not there reach all of it.
  std::map<std::string, double> tile_efficiency{};
  /// Units that sums and copies without an engine run on, beside tiles, where their lane does not say; 0 = all.
  int side_units = 0;
  /// Tiles begin with the columns of A that are there, and wait for the others when they come to them.
  bool waits_by_columns = false;

  bool operator==(const ComputeUnits&) const = default;
};

/// Memory of one device and its last-level cache.
struct DeviceMemory {
  double bandwidth_GBps = 0;       ///< sustained, reads and writes together
  double unit_bandwidth_GBps = 0;  ///< most that one compute unit moves; 0 = no limit of its own
  double cache_MiB = 0;            ///< last-level cache that GEMM inputs stay in

  bool operator==(const DeviceMemory&) const = default;
};

/// The controllers of one device's memory, request by request. One channel is simulated: addresses are interleaved
/// evenly. Defaults are those of T3's Table 1 and of the HBM2 that it refers to.
struct MemoryController {
  int channels = 32;
  double clock_GHz = 1;
  int request_bytes = 128;
  int column_bytes = 32;  ///< that one column command moves
  int bank_groups = 4;
  int column_clocks = 2;  ///< between column commands to one bank group (CCDL)
  int update_clocks = 4;  ///< the same, after an op-and-store (CCDWL)
  int queue = 64;         ///< requests that wait in the DRAM queue of a channel
  double latency_ns = 0;  ///< of a read, beside its time in the queue
  Arbitration arbitration = Arbitration::round_robin;
  std::vector<int> thresholds{5, 10, 30};  ///< of requests in the DRAM queue; the more a kernel reads, the lower
  int starvation_clocks = 25;              ///< after so many without one, a request of communication is passed on
  NearMemory near_memory = NearMemory::op_and_store;
  bool caches_outputs = false;  ///< stored results take room in the last-level cache; accumulated ones never do
  int64_t step_k = 32;          ///< K step of a GEMM whose plan does not say; the next one's data is read meanwhile

  bool operator==(const MemoryController&) const = default;
};

/// T3's Tracker: counts updates of what each wavefront makes.
struct Tracker {
  int entries = 256;
  int ways = 8;  ///< wavefronts in each entry
  int address_bits = 48;
  int counter_bits = 20;
  int workgroup_bits = 5;  ///< of a workgroup's number, those that do not select the entry
  int wavefront_bits = 3;

  bool operator==(const Tracker&) const = default;
};

/// Engines of one device that copy without compute units.
struct CopyEngines {
  int engines = 1;
  double issue_ns = 0;     ///< of each copy, before its first byte
  double doorbell_ns = 0;  ///< of each copy that waits for signals, besides

  bool operator==(const CopyEngines&) const = default;
};

/// Links between devices.
struct Links {
  Topology topology = Topology::fully_connected;
  std::vector<int> dims{};
  double bandwidth_GBps = 0;  ///< of a link, one direction, decimal
  double latency_ns = 0;      ///< of a link
  Forwarding forwarding = Forwarding::cut_through;
  double store_efficiency = 1;        ///< of stores and loads by compute units, relative to copies
  double unit_bandwidth_GBps = 0;     ///< most that one compute unit stores to or loads from peers; 0 = no limit
  double add_efficiency = 1;          ///< of stores by compute units that add at a peer, relative to stores
  double meeting_efficiency = 1;      ///< of a link into a device when several devices send to it at once
  double between_bandwidth_GBps = 0;  ///< two_level: of a device's link to other nodes, one direction
  double between_latency_ns = 0;      ///< two_level

  bool operator==(const Links&) const = default;
};

/// What starting things and telling of them costs.
struct Overheads {
  double launch_ns = 0;              ///< of a call, before its first task
  double signal_ns = 0;              ///< from a post to the waiter that it wakes, beside the latency of the link
  double library_ns = 0;             ///< of each call of a library
  double collective_ns = 0;          ///< of each collective of a library, beside library_ns
  double collective_efficiency = 1;  ///< of a library's collectives, relative to the link
  double library_efficiency = 1;     ///< of a library's GEMM, relative to compute.efficiency

  bool operator==(const Overheads&) const = default;
};

struct Machine {
  std::string name{};
  std::string summary{};
  ComputeUnits compute{};
  DeviceMemory memory{};
  std::optional<MemoryController> controller{};  ///< nothing: memory is shared as a fluid is
  std::optional<Tracker> tracker{};
  CopyEngines copy{};
  Links links{};
  Overheads overheads{};
  /// Where each number comes from, by key ("links.bandwidth_GBps"); what is assumed says so first.
  std::map<std::string, std::string> sources{};

  bool operator==(const Machine&) const = default;
};

/// Number of devices: the product of links.dims.
[[nodiscard]] int num_devices(const Machine& machine);
/// Bytes of memory in a tracker.
[[nodiscard]] double bytes_of(const Tracker& tracker);
/// Throw Error(invalid_input) that names the key, the value and the rule broken.
void validate(const Machine& machine);

/// Names of the machines that tilewire knows.
[[nodiscard]] std::vector<std::string> machine_names();
/// A machine that tilewire knows, or the one in the JSON file of that path, whose name it has if it says none.
/// Validated. Throws Error(invalid_input).
[[nodiscard]] Machine load_machine(const std::string& name_or_path);
/// A network without compute or memory limits: "ring:8", "fully_connected:8", "switch:16", "torus2d:4x4",
/// "two_level:2x4". Messages are stored and forwarded; links have 100 GB/s and 500 ns until they are set. Throws
/// Error(invalid_input).
[[nodiscard]] Machine bare_network(const std::string& text);
/// Set one value by its key, as `--set links.latency_ns=500` does, and say so in its source. Does not validate: values
/// may depend on each other. Throws Error(invalid_input) that lists the keys.
void set_value(Machine& machine, const std::string& key, const std::string& value);

}  // namespace tilewire
