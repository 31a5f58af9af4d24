// Whether all ranks ask `make_op` for the same.
// Called by make_op.cpp.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "tilewire/op.hpp"

namespace tilewire {

/// Whether the plan is proven first.
[[nodiscard]] bool checks(const OpOptions& options);
/// Problem, knobs and options side by side, so that a difference has one name.
[[nodiscard]] nlohmann::json request_of(const Problem& problem, const std::optional<Config>& config,
                                        const OpOptions& options);
/// Throw on every rank, with the same words, unless all ranks ask for the same; where `read` throws on one, too.
/// Collective.
void require_same(Group& group, const std::function<nlohmann::json()>& read);

}  // namespace tilewire
