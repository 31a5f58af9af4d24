// Child processes, and their results.
// Used by group_test.cpp.
#include "cuda/child.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "backends/cuda/cuda.hpp"
#include "core/system_call.hpp"
#include "read_to_end.hpp"

namespace tilewire::testing {
namespace {

constexpr unsigned kPatienceS = 240;

void write_all(int pipe, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t size = write(pipe, text.data() + sent, text.size() - sent);
    if (size <= 0) return;
    sent += static_cast<size_t>(size);
  }
}

[[noreturn]] void be_child(int pipe, const std::function<std::string()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // This alarm ends a child that hangs.
  alarm(kPatienceS);
  int code = 0;
  std::string text;
  try {
    text = body();
  } catch (const std::exception& error) {
    code = 1;
    text = error.what();
  }
  write_all(pipe, text);
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (const SystemCall made = system_call([&] { return pipe(ends.data()); }); !made.ok()) {
    ADD_FAILURE() << "pipe: " << made.why();
    return "";
  }
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    be_child(ends[1], body);
  }
  close(ends[1]);
  const std::string text = testing::read_to_end(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) {
    ADD_FAILURE() << "the child was killed by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status))
                  << (WTERMSIG(status) == SIGALRM ? "): it hung" : ")");
  } else if (WEXITSTATUS(status) != 0) {
    ADD_FAILURE() << text;
  }
  return text;
}

int num_gpus_here() {
  if (cuda::cuda_unavailable()) return 0;
  static const std::string count = in_child([] { return std::to_string(cuda::cuda_facts().gpus.size()); });
  return std::atoi(count.c_str());
}

void see_one_gpu() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string all = visible == nullptr ? "0" : visible;
  setenv("CUDA_VISIBLE_DEVICES", all.substr(0, all.find(',')).c_str(), 1);
}

}  // namespace tilewire::testing
