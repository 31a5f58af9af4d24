// A machine as numbers: the simulator executes plans on it. Plain data, read from JSON with units in the keys.
// The known machines are src/backends/sim/machines/*.json; docs/simulator.md defines each key.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewire/dtype.hpp"

namespace tilewire {

/// How devices are connected.
enum class Topology {
  ring,             ///< dims {n}; links in both directions; messages take the shorter one
  fully_connected,  ///< dims {n}; one link for each ordered pair of devices
  switched,         ///< dims {n}; each device has one link to a switch and one from it
  torus2d,          ///< dims {rows, columns}; rings along both dimensions; messages move within their row first
  two_level,        ///< dims {nodes, devices per node}; fully connected inside a node; nodes are connected by a switch
};

/// When a message starts its next hop.
enum class Forwarding {
  cut_through,        ///< at once: a message holds all links of its route at the same time
  store_and_forward,  ///< when the last hop has ended and the link has served the messages that came earlier
};

/// Whose requests a memory controller passes first to its DRAM queue: those of the GEMM kernel or of communication.
enum class Arbitration {
  round_robin,          ///< alternately; if one side has no request, the other side's
  compute_first,        ///< communication's only if the kernel has no request
  communication_aware,  ///< as compute_first, and only while the DRAM queue is shorter than a threshold (T3-MCA)
};

/// Where the additions of WriteMode::accumulate are done.
enum class NearMemory {
  op_and_store,  ///< units beside the banks: one command, which occupies the bank group for longer
  atomics,       ///< the memory side of the caches: a read and a write
};

/// Compute units of one device (SMs, CUs).
struct ComputeUnits {
  int units = 0;
  double clock_GHz = 0;
  double flops_per_clock_per_unit = 0;  ///< 16-bit matrix instructions; a multiply-add is 2 FLOP
  double fp32_speed = 0.5;              ///< speed of fp32 products relative to 16 bit
  double tf32_speed = 0.5;              ///< speed of fp32 products that may be rounded to TF32, relative to 16 bit
  double efficiency = 1;                ///< share of the peak that a GEMM's mainloop sustains
  double tile_ns = 0;                   ///< time of each tile besides its mainloop
  /// By shape, "128x128": share of `efficiency` that the plan's own tiles reach; 1 for other shapes.
  std::map<std::string, double> tile_efficiency{};
  /// Units for sums and copies without a copy engine, beside tiles, if their lane has no number of workers; 0 = all.
  int side_units = 0;
  /// Tiles start with the columns of A that have arrived, and wait for later columns in the mainloop.
  bool waits_by_columns = false;

  bool operator==(const ComputeUnits&) const = default;
};

/// Memory of one device and its last-level cache.
struct DeviceMemory {
  double bandwidth_GBps = 0;       ///< sustained; reads and writes together
  double unit_bandwidth_GBps = 0;  ///< limit of one compute unit; 0 = none
  double cache_MiB = 0;            ///< last-level cache, which holds inputs of GEMMs

  bool operator==(const DeviceMemory&) const = default;
};

/// The memory controllers of one device, simulated request by request. Only one channel is simulated, because addresses
/// are interleaved evenly. Defaults are those of T3's Table 1 and of the HBM2 that it cites.
struct MemoryController {
  int channels = 32;
  double clock_GHz = 1;
  int request_bytes = 128;
  int column_bytes = 32;  ///< bytes of one column command
  int bank_groups = 4;
  int column_clocks = 2;  ///< clocks between column commands to one bank group (CCDL)
  int update_clocks = 4;  ///< the same after an op-and-store (CCDWL)
  int queue = 64;         ///< requests in the DRAM queue of a channel
  double latency_ns = 0;  ///< latency of a read besides its time in the queue
  Arbitration arbitration = Arbitration::round_robin;
  std::vector<int> thresholds{5, 10, 30};  ///< queue lengths; the lower, the more a kernel reads
  int starvation_clocks = 25;              ///< a communication request passes after it has waited for so many clocks
  NearMemory near_memory = NearMemory::op_and_store;
  bool caches_outputs = false;  ///< stored results take room in the last-level cache; accumulated results never do
  int64_t step_k = 32;          ///< K step of a GEMM whose plan gives none; the next step is read during each step

  bool operator==(const MemoryController&) const = default;
};

/// T3's Tracker: counts the updates of each wavefront's output.
struct Tracker {
  int entries = 256;
  int ways = 8;  ///< wavefronts in each entry
  int address_bits = 48;
  int counter_bits = 20;
  int workgroup_bits = 5;  ///< bits of a workgroup's number that do not select the entry
  int wavefront_bits = 3;

  bool operator==(const Tracker&) const = default;
};

/// Copy engines of one device. They need no compute units.
struct CopyEngines {
  int engines = 1;
  double issue_ns = 0;     ///< time of each copy before its first byte
  double doorbell_ns = 0;  ///< further time of each copy that waits for signals

  bool operator==(const CopyEngines&) const = default;
};

/// Links between devices.
struct Links {
  Topology topology = Topology::fully_connected;
  std::vector<int> dims{};
  double bandwidth_GBps = 0;  ///< one link, one direction, decimal GB/s
  double latency_ns = 0;      ///< latency of one link
  Forwarding forwarding = Forwarding::cut_through;
  double store_efficiency = 1;        ///< of stores and loads by compute units, relative to copies
  double unit_bandwidth_GBps = 0;     ///< limit of one compute unit's stores to and loads from peers; 0 = none
  double add_efficiency = 1;          ///< of compute units' stores that add at a peer, relative to plain stores
  double meeting_efficiency = 1;      ///< share of a link into a device when several devices send to it at once
  double between_bandwidth_GBps = 0;  ///< two_level: a device's link to other nodes, one direction
  double between_latency_ns = 0;      ///< two_level

  bool operator==(const Links&) const = default;
};

/// Costs of launches, signals and library calls.
struct Overheads {
  double launch_ns = 0;              ///< time of a call before its first task
  double signal_ns = 0;              ///< time from a post to its waiter, besides the latency of the link
  double library_ns = 0;             ///< time of each library call
  double collective_ns = 0;          ///< further time of each library collective
  double collective_efficiency = 1;  ///< of library collectives, relative to the link
  double library_efficiency = 1;     ///< of library GEMMs, relative to compute.efficiency

  bool operator==(const Overheads&) const = default;
};

struct Machine {
  std::string name{};
  std::string summary{};
  ComputeUnits compute{};
  DeviceMemory memory{};
  std::optional<MemoryController> controller{};  ///< empty: the memory is one shared bandwidth
  std::optional<Tracker> tracker{};
  CopyEngines copy{};
  Links links{};
  Overheads overheads{};
  /// Origin of each number, by key ("links.bandwidth_GBps"); the text of an assumed number starts with "assumed".
  std::map<std::string, std::string> sources{};

  bool operator==(const Machine&) const = default;
};

/// Number of devices: the product of links.dims.
[[nodiscard]] int num_devices(const Machine& machine);
/// Bytes of the memory inside a Tracker.
[[nodiscard]] double bytes_of(const Tracker& tracker);
/// Throw Error(invalid_input) with the key, the value and the broken rule.
void validate(const Machine& machine);

/// Names of the machines that tilewire knows.
[[nodiscard]] std::vector<std::string> machine_names();
/// Return a known machine, or read the JSON file of that path. A file without a name gives its own name to the machine.
/// Validated. Throws Error(invalid_input).
[[nodiscard]] Machine load_machine(const std::string& name_or_path);
/// A network without limits of compute or memory: "ring:8", "fully_connected:8", "switch:16", "torus2d:4x4",
/// "two_level:2x4". Forwarding is store_and_forward; links have 100 GB/s and 500 ns unless they are set. Throws
/// Error(invalid_input).
[[nodiscard]] Machine bare_network(const std::string& text);
/// Set one value by its key, as `--set links.latency_ns=500` does, and record that in `sources`. Does not validate,
/// because values can depend on each other. Throws Error(invalid_input) with the known keys.
void set_value(Machine& machine, const std::string& key, const std::string& value);

}  // namespace tilewire
