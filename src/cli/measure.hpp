// Times of whole plans and of their parts, measured interleaved.
// Used by bench.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operators/tensors.hpp"
#include "schedules/parts.hpp"
#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::cli {

/// A plan that is timed, interleaved with others.
struct Contender {
  std::string name;
  std::unique_ptr<Program> program;              ///< null: takes no time
  std::vector<double> samples_us;                ///< one per repetition: the slowest rank
  int calls = 0;                                 ///< timed together in each repetition; 0 = not known yet
  std::shared_ptr<const RankTensors> tensors{};  ///< its own; null = the tensors of all
  bool graph = false;                            ///< calls are replays of a graph; on devices only
  bool traced = false;                           ///< calls are traced
  std::vector<double> enqueue_us{};              ///< one per repetition, if calls are enqueued: host time of a call
};

/// Load the plan; a plan without tasks takes no time. Throws Error(unsupported) with what the backend cannot do, or has
/// no memory for.
[[nodiscard]] Contender contender(Group& group, const std::string& name, const Plan& plan);

struct Turns {
  int warmup = 1;
  int measured = 5;
};

/// On devices with a clock of their own: measure each contender once. Then decide, and return, whether all of them are
/// replayed from graphs, or none. The first `rows` contenders are whole calls, of a problem of `m` rows. Collective.
[[nodiscard]] bool choose_graphs(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders,
                                 size_t rows, int64_t m);
/// The host's time to enqueue a call without graph replay; nothing if calls are not enqueued. Collective.
[[nodiscard]] std::optional<double> eager_enqueue_us(Group& group, const Contender& contender,
                                                     const RankTensors& tensors);

/// Measure all contenders interleaved: A B C A B C ... Collective. `show` gets a line about the next measurement.
void measure_in_turn(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders, const Turns& turns,
                     const std::function<void(const std::string&)>& show);

/// The median of the samples; 0 if there are none.
[[nodiscard]] double median_us(const Contender& contender);

/// A problem whose GEMM on each rank is that of a gather, with the gathered matrix as a caller's input. In a GEMM
/// alone, no task would fill the workspace with data, and the device's speed depends on the data.
[[nodiscard]] Problem gemm_of_gather(const Problem& problem, int num_ranks);

/// The config of `sequential` with another config's GEMM knobs, and no others.
[[nodiscard]] Config same_tiles(const Config& config);

/// `gemm`, a result of gemm_only, and beside it copies of `bytes` in all from each rank, in lockstep by copy engines.
/// They are independent of the GEMM, so this is the practical limit of overlap (`free`).
[[nodiscard]] Plan beside_exchange(const Plan& gemm, int64_t bytes);
/// us that each rank's least bytes take on its slowest link; nothing if links are unknown or there are none.
[[nodiscard]] std::optional<double> link_us(const Problem& problem, const Team& team);

}  // namespace tilewire::cli
