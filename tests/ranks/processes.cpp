// Ranks as processes of a test that each print one line.
// Called by the tests of start-up.
#include "ranks/processes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "read_to_end.hpp"

namespace tilewire::testing {

std::string unique_name() {
  static int count = 0;
  return fmt::format("join-test.{}.{}", getpid(), count++);
}

JoinOptions options_of(const std::string& job, int rank, int num_ranks, double timeout_s) {
  return {rank, num_ranks, job, 1 << 20, timeout_s};
}

Processes::Processes() { EXPECT_EQ(pipe(ends_.data()), 0); }

void Processes::start(const std::function<std::string()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pids_.push_back(pid);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(ends_[0]);
  // Numbers that do not disturb tests that count descriptors.
  const int end = fcntl(ends_[1], F_DUPFD, kAway);
  close(ends_[1]);
  const std::string line = body() + "\n";
  _exit(write(end, line.data(), line.size()) < 0);
}

std::vector<std::string> Processes::lines() {
  close(ends_[1]);
  const std::string text = read_to_end(ends_[0]);
  for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  std::vector<std::string> all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

std::string try_to_join(const JoinOptions& options) {
  try {
    const auto group = join("host", options);
    group->barrier();
    return "good";
  } catch (const Error& error) {
    return stream_ordered(error);
  }
}

std::string stream_ordered(const Error& error) {
  return fmt::format("{}: {}", static_cast<int>(error.kind()), error.what());
}

void expect_all(const std::vector<std::string>& lines, size_t count, const std::string& part) {
  EXPECT_EQ(lines.size(), count);
  for (const std::string& line : lines) EXPECT_NE(line.find(part), std::string::npos) << line << "\nlacks: " << part;
}

}  // namespace tilewire::testing
