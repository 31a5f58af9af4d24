// Times of whole plans and of their parts, taken in turn.
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

/// Something that takes its turn.
struct Contender {
  std::string name;
  std::unique_ptr<Program> program;              ///< null: takes no time
  std::vector<double> samples_us;                ///< one per turn: the slowest rank
  int calls = 0;                                 ///< timed together in each turn; 0 = not known yet
  std::shared_ptr<const RankTensors> tensors{};  ///< its own; none = everybody's
  bool graph = false;                            ///< calls are replays of a graph; on devices only
  bool traced = false;                           ///< calls are traced
  std::vector<double> enqueue_us{};              ///< one per turn, where calls are enqueued: a call by the host's clock
};

/// Load the plan; one without tasks takes no time. Throws Error(unsupported) with what the backend cannot do,
/// or has no room for.
[[nodiscard]] Contender contender(Group& group, const std::string& name, const Plan& plan);

struct Turns {
  int warmup = 1;
  int measured = 5;
};

/// On devices with a clock of their own: measure each contender once, and replay all or none of them from graphs from
/// then on, and say which. The first `rows` contenders are whole calls, of a problem of `m` rows. Collective.
[[nodiscard]] bool choose_graphs(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders,
                                 size_t rows, int64_t m);
/// What the host takes to enqueue a call that is no replay; nothing where calls are not enqueued. Collective.
[[nodiscard]] std::optional<double> eager_enqueue_us(Group& group, const Contender& contender,
                                                     const RankTensors& tensors);

/// Run all contenders one after another, again and again: A B C A B C ... Collective. `show` hears
/// what comes next.
void measure_in_turn(Group& group, const RankTensors& tensors, std::vector<Contender>& contenders, const Turns& turns,
                     const std::function<void(const std::string&)>& show);

/// The median of the samples; 0 where there are none.
[[nodiscard]] double median_us(const Contender& contender);

/// A problem whose GEMM on each rank is that of a gather, with the gathered matrix as an input of the caller's: nobody
/// fills the workspace of a GEMM alone, and a device is faster on what it finds there.
[[nodiscard]] Problem gemm_of_gather(const Problem& problem, int num_ranks);

/// `sequential` with what a config says of its GEMM, and nothing else.
[[nodiscard]] Config same_tiles(const Config& config);

/// `gemm`, a result of gemm_only, and beside it copies of `bytes` from each rank in all, in lockstep by copy engines,
/// which wait for nothing of it: what overlap can reach at best.
[[nodiscard]] Plan beside_exchange(const Plan& gemm, int64_t bytes);
/// us that each rank's least bytes take on its slowest link; nothing where links are unknown or there are none.
[[nodiscard]] std::optional<double> link_us(const Problem& problem, const Team& team);

}  // namespace tilewire::cli
