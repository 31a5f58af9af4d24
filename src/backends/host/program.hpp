// A plan loaded for one host rank: its lanes, their workers, and their memory.
// Made by HostGroup::load.
#pragma once

#include <memory>

#include "backends/host/group.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire::host {

/// Load a plan (Group::load). Collective.
[[nodiscard]] std::unique_ptr<Program> load_program(HostGroup& group, const Plan& plan);

}  // namespace tilewire::host
