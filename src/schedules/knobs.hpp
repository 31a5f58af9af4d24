// Which knobs a schedule honours: every other one must have its default, or the schedule refuses.
// Called by the schedules' `refuses`.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "tilewire/config.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {

/// The first knob that differs from its default and is neither in `honoured` nor one of those that
/// every schedule hands on to the kernels (tile shape, pipeline, workers of the tile lane).
[[nodiscard]] std::optional<std::string> ignored_knob(const Config& config,
                                                      std::initializer_list<const char*> honoured);
/// That the operator's structure is not `known`, and which operators' are; or nothing.
[[nodiscard]] std::optional<std::string> unknown_operator(const Problem& problem, bool (*known)(const Structure&));
/// Whether an operator has one collective, of rows or columns: an all-gather before the product, or any other after it.
[[nodiscard]] bool has_one_collective(const Structure& structure);
/// Whether there is a GEMM.
[[nodiscard]] bool multiplies(const Problem& problem);
/// Whether the operator's collective is this one: an all-gather of A ...
[[nodiscard]] bool gathers(const Problem& problem);
/// ... a reduce-scatter, an all-reduce, an all-to-all of columns.
[[nodiscard]] bool scatters(const Problem& problem);
[[nodiscard]] bool all_reduces(const Problem& problem);
[[nodiscard]] bool exchanges(const Problem& problem);
/// Whether a gather is of columns, or a reduce-scatter.
[[nodiscard]] bool by_columns(const Problem& problem);
[[nodiscard]] bool gathers_columns(const Problem& problem);
/// Why no all-gather has this algorithm with this direction and pacing, or nothing.
[[nodiscard]] std::optional<std::string> refuses_gather_algorithm(const Config& config);
/// Why what is no gather cannot have this order of tiles, or nothing.
[[nodiscard]] std::optional<std::string> refuses_in_step(const Config& config);
/// Why stores and loads between ranks cannot be used in this team, or nothing.
[[nodiscard]] std::optional<std::string> unreachable_peer(const Team& team);
/// Throw Error(invalid_input) for values that no schedule can take.
void validate(const Config& config);

}  // namespace tilewire
