// The checker's stages, each in the file of its name. Called by check.cpp in this order.
#pragma once

#include <vector>

#include "check/order.hpp"
#include "check/report.hpp"
#include "check/tasks.hpp"
#include "tilewire/check.hpp"

namespace tilewire::checking {

/// Rules of single tasks: who reaches what, shapes, and what the checker knows nothing about.
void check_structure(const Tasks& tasks, const std::vector<Epilogue>& epilogue, Report& report);
/// Calls of a library's collectives: those of all ranks fit together.
void check_collectives(const Tasks& tasks, Report& report);
/// Tasks in an order in which one worker a lane executes them; fewer than all on a deadlock.
[[nodiscard]] std::vector<int> check_progress(const Tasks& tasks, Report& report);
/// Execute symbolically in this order: every element gets every contribution once.
void check_coverage(const Tasks& tasks, const std::vector<Meaning>& meanings, const std::vector<int>& sequence,
                    Report& report);
/// Every two accesses of which one writes are ordered, in one call and between two; what callers or other operators
/// use, too, is touched while its rank's call is under way.
void check_races(const Tasks& tasks, const Order& order, Report& report);

}  // namespace tilewire::checking
