// Small hand-built plans, and checks that work in child processes.
// Used by the tests of ranks and faults.
#pragma once

#include <string>
#include <vector>

#include "core/text.hpp"
#include "tilewire/group.hpp"

namespace tilewire::testing {

/// ThreadSanitizer does not see that processes wait for each other, and reports false races.
#ifdef TILEWIRE_TSAN
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
/// Values of LaunchOptions::threads that this build can test.
[[nodiscard]] std::vector<bool> launch_modes();

/// Throw Error(wrong_result): a child process cannot fail a test in another way.
template <class... Args>
void want(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorKind::wrong_result, format, std::forward<Args>(args)...);
}

[[nodiscard]] Plan new_plan(const std::string& op, int num_ranks);
int add_buffer(Plan& plan, const std::string& name, DType dtype, Shape shape, Scope scope);
/// `count` new signals; returns the first.
int add_signals(Plan& plan, const std::string& name, int count = 1);
Lane& add_lane(Plan& plan, int rank, Engine engine, const std::string& name, int workers = 0);
[[nodiscard]] Region whole(const Plan& plan, int rank, int buffer);
[[nodiscard]] Task copy_task(const Region& from, const Region& to);
[[nodiscard]] Task sync_task();

/// Two ranks that post to each other `rounds` times per call, without data.
[[nodiscard]] Plan ping_pong(int rounds);
/// Every rank copies its input to its place in every rank's output through symmetric workspace, with the ready
/// handshake at the begin and the end. Output: num_ranks x `cols`, fp32.
[[nodiscard]] Plan all_gather_plan(int num_ranks, int64_t cols);
/// Each of two ranks copies the other's input (2 x 3, fp32, addressable by peers) to its own output.
[[nodiscard]] Plan pull_plan();

/// The Error of `body`; fails the test if there is none.
[[nodiscard]] Error error_of(const std::function<void()>& body);
/// Small arenas, as sanitizers need.
[[nodiscard]] LaunchOptions small_launch(bool threads, double timeout_s = 30);
[[nodiscard]] int num_descriptors();

}  // namespace tilewire::testing
