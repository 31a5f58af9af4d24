// The checker's stages, each in the file of its name. Called by check.cpp in this order.
#pragma once

#include <vector>

#include "check/order.hpp"
#include "check/report.hpp"
#include "check/tasks.hpp"
#include "tilewire/check.hpp"

namespace tilewire::checking {

/// Rules of single tasks: reachable memory, shapes, types, limits of the checker.
void check_structure(const Tasks& tasks, const Specification& wanted, Report& report);
/// Library collectives: the calls of all ranks match.
void check_collectives(const Tasks& tasks, Report& report);
/// The tasks in an order in which one worker per lane executes them. On a deadlock some are missing.
[[nodiscard]] std::vector<int> check_progress(const Tasks& tasks, Report& report);
/// Execute symbolically in this order: every output element gets every contribution once.
void check_coverage(const Tasks& tasks, const std::vector<Meaning>& meanings, const std::vector<int>& sequence,
                    Report& report);
/// Every two accesses of one element, one of them a write, are ordered, within a call and between two calls. Callers'
/// buffers and shared workspace are only accessed while their rank's call runs. `heard`: heard_by_ranks, if
/// the plan has double-buffered LL data.
void check_races(const Tasks& tasks, const Order& order, const RankSets& heard, Report& report);

}  // namespace tilewire::checking
