// Ranks as processes of a test that each print one line.
// Used by the tests of start-up.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tilewire/group.hpp"

namespace tilewire::testing {

/// A job name that no other test uses.
[[nodiscard]] std::string unique_name();
/// Options with a small arena.
[[nodiscard]] JoinOptions options_of(const std::string& job, int rank, int num_ranks, double timeout_s);

/// In its children, descriptors of `Processes` have numbers from this one on.
constexpr int kAway = 100;

/// Processes that each print one line into a common pipe; `lines` waits for all of them.
class Processes {
 public:
  Processes();
  void start(const std::function<std::string()>& body);
  std::vector<std::string> lines();

 private:
  std::array<int, 2> ends_{};
  std::vector<pid_t> pids_;
};

/// Join and meet once. Returns "good", or "1: " (the kind's number) and the Error's text.
[[nodiscard]] std::string try_to_join(const JoinOptions& options);
/// The result of try_to_join for an Error.
[[nodiscard]] std::string stream_ordered(const Error& error);
void expect_all(const std::vector<std::string>& lines, size_t count, const std::string& part);

}  // namespace tilewire::testing
