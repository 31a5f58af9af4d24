// T3's study (Pati et al., ASPLOS 2024): the GEMMs of Transformers that an all-reduce follows, and the time of each of
// the
// paper's configurations on a machine. Used by t3_study.cpp, t3_verb.cpp and tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tilewire/problem.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {

/// Sub-layers whose result is summed over all devices of a tensor-parallel group (T3, section 6.1).
enum class SubLayerKind {
  output_projection,  ///< "OP", forward: K = hidden / TP
  fc2,                ///< "FC-2", forward: K = 4 hidden / TP
  fc1,                ///< "FC-1", backward: K = 4 hidden / TP
  input_projection,   ///< "IP", backward: K = 3 hidden / TP
};

/// A model of T3's Table 2.
struct T3Model {
  std::string name{};
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t tokens = 0;  ///< of an iteration: sequence length x batch
  int64_t sequence = 0;
  std::vector<int> tp{};  ///< degrees of tensor parallelism

  bool operator==(const T3Model&) const = default;
};

/// One GEMM of a device: m x k times k x n in fp16, whose m x n results are summed over `tp` devices.
struct SubLayer {
  std::string model{};
  SubLayerKind kind = SubLayerKind::output_projection;
  int tp = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  ///< of one device

  bool operator==(const SubLayer&) const = default;
};

/// Bytes that one device's memory moves.
struct MemoryTraffic {
  int64_t gemm_reads = 0;
  int64_t gemm_writes = 0;
  int64_t rs_reads = 0;
  int64_t rs_writes = 0;
  int64_t ag_reads = 0;
  int64_t ag_writes = 0;

  [[nodiscard]] int64_t total() const { return gemm_reads + gemm_writes + rs_reads + rs_writes + ag_reads + ag_writes; }
  bool operator==(const MemoryTraffic&) const = default;
};

/// Times of one sub-layer on one machine: isolated kernels, and the GEMM fused with its reduce-scatter.
struct SubLayerTimes {
  double gemm_ns = 0;
  double rs_ns = 0;         ///< ring reduce-scatter by compute units
  double rs_near_ns = 0;    ///< by DMA engines and near-memory reduction
  double ag_ns = 0;         ///< ring all-gather
  double fused_ns = 0;      ///< T3: GEMM and reduce-scatter, with round-robin memory arbitration
  double fused_mca_ns = 0;  ///< T3-MCA: the same with communication-aware arbitration
  MemoryTraffic sequential{};
  MemoryTraffic t3{};  ///< of T3-MCA

  bool operator==(const SubLayerTimes&) const = default;
};

/// Bytes that one device's memory moves over time, in one configuration.
struct TrafficOverTime {
  double total_ns = 0;
  double gemm_ns = 0;  ///< until the device's last tile has ended
  std::vector<IntervalLoad> intervals{};
};

/// The GEMM alone, and fused with its reduce-scatter, as in SubLayerTimes (T3, figure 17).
struct SubLayerTraffic {
  double interval_ns = 0;
  TrafficOverTime gemm{};
  TrafficOverTime t3{};
  TrafficOverTime t3_mca{};
};

/// Table 2 of the paper.
[[nodiscard]] const std::vector<T3Model>& t3_models();
/// The four sub-layers of a model at one degree, in the order OP, FC-2, FC-1, IP. Assumed, as the paper prints no
/// shapes: Megatron's slicing, feed-forward layers 4 times and QKV 3 times as wide as `hidden`.
[[nodiscard]] std::vector<SubLayer> sub_layers_of(const T3Model& model, int tp);
/// "OP", "FC-2", "FC-1", "IP".
[[nodiscard]] std::string short_name(SubLayerKind kind);
/// The sub-layer's GEMM and reduce-scatter as an operator's problem: fp16, K of all ranks, outputs in the arena.
[[nodiscard]] Problem problem_of(const SubLayer& layer);
/// Simulate all six times. `machine` is a ring with a memory controller; its number of devices is set to `tp`. Throws
/// Error(invalid_input) for another machine.
[[nodiscard]] SubLayerTimes simulate_sub_layer(const SubLayer& layer, const Machine& machine);
/// Simulate the traffic of device 0's memory over time, on such a machine.
[[nodiscard]] SubLayerTraffic simulate_traffic(const SubLayer& layer, const Machine& machine, double interval_ns);

}  // namespace tilewire
