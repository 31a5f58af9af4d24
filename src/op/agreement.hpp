// Checks that all ranks make the same request of `make_op`.
// Called by make_op.cpp.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "tilewire/op.hpp"

namespace tilewire {

/// Whether make_op proves the plan.
[[nodiscard]] bool checks(const OpOptions& options);
/// Problem, knobs and options in one flat object, so that each difference has a name.
[[nodiscard]] nlohmann::json request_of(const Problem& problem, const std::optional<Config>& config,
                                        const OpOptions& options);
/// Throw Error(invalid_input) with the same text on every rank unless `read` returns the same on all ranks. If `read`
/// throws on one rank, all ranks throw that error. Collective.
void require_same(Group& group, const std::function<nlohmann::json()>& read);

}  // namespace tilewire
