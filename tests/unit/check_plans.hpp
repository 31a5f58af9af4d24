// Small hand-written plans for the tests of the checker, and expectations on its results.
// Called by check_*_test.cpp.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>

#include "tilewire/check.hpp"
#include "tilewire/plan.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::check_plans {

/// Rows [row, row + rows) x columns [col, col + cols) of a rank's buffer.
[[nodiscard]] Region part(int rank, int buffer, int64_t row, int64_t rows, int64_t col, int64_t cols);

/// Two ranks, m = n = 4, k = 3. Each pushes its 2 rows of A to the other after the ready handshake; it has a tile for
/// its own rows, and a tile for the other's. Lanes 2 r: tiles, 2 r + 1: copy. Buffers a, b, c, gathered.
[[nodiscard]] Plan gather_plan();

/// `num_ranks` ranks, m = 2 rows each, n = 2, k = 2 each, with bias. One tile per owner stores to the owner's workspace
/// after the handshake; the owner sums when arrived has `num_ranks` posts. Lane 2 r: tiles (sync, remote owners from r
/// + 1 on, own), 2 r + 1: reduce. Buffers a, b, bias, c, staged.
[[nodiscard]] Plan scatter_plan(int num_ranks);

/// scatter_plan(2) without bias, with sums in place: fill, then accumulate, then copy out. Lane 2 r: tiles, 2 r + 1:
/// copy (fill, copy out). Buffers a, b, c, sum.
[[nodiscard]] Plan accumulate_plan();

/// gather_plan for k = 3, m = 8: each copy lane sends two chunks and counts both by one signal; tiles wait for 1 and 2.
/// Lane 2 r: tiles (sync, own rows, chunk 0, chunk 1), 2 r + 1: copy.
[[nodiscard]] Plan counter_plan();

/// scatter_plan whose handshake is one counter per rank; all peers add to it.
[[nodiscard]] Plan barrier_plan(int num_ranks);

/// The first signal of that name on a rank.
[[nodiscard]] Signal signal_of(const Plan& plan, const std::string& block, int rank, int index = 0);
/// Change the problem in the plan's note.
void change_problem(Plan& plan, const std::function<void(Problem&)>& change);
/// All violations, one line each.
[[nodiscard]] std::string words(const CheckResult& result);
void expect_accepted(const Plan& plan);
/// Require a refusal by `rule` with a text that contains all of `parts`.
void expect_refused(const Plan& plan, Rule rule, std::initializer_list<const char*> parts);
void expect_refused(const CheckResult& result, Rule rule, std::initializer_list<const char*> parts);

}  // namespace tilewire::check_plans
