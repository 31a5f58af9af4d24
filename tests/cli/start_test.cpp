// The command's start in unusual surroundings: closed standard streams, limits, contradicting launchers.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace tilewire::testing {
namespace {

const std::string kSmall = "bench all_reduce -m 8 -n 8 --schedule sequential --no-verify ";

/// A line for the shell; `tilewire` in it is the command.
int run_shell(const std::string& line) {
  const std::string script = "tilewire() { " TILEWIRE_COMMAND " \"$@\"; }; " + line;
  const int status = std::system(script.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StartOfTheCommand, ClosedStreamsLoseOnlyWhatIsPrinted) {
  const std::string file = fresh_folder() + "/x.json";
  for (const char* closed : {"<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    for (const char* threads : {"", "--threads "}) {
      EXPECT_EQ(
          run_shell("tilewire " + kSmall + "--ranks 2 " + threads + "--json " + file + " >/dev/null 2>&1 " + closed), 0)
          << closed;
      EXPECT_EQ(nlohmann::json::parse(read_text(file))["rows"].size(), 1U) << closed;
      write_text(file, "");
    }
  }
}

TEST(StartOfTheCommand, LimitsAreNamedWithTheArenaAndItsFlag) {
  const std::string err = fresh_folder() + "/err";
#if !defined(TILEWIRE_ASAN) && !defined(TILEWIRE_TSAN)
  EXPECT_EQ(run_shell("ulimit -v 20000000; tilewire " + kSmall + "--ranks 4 >/dev/null 2>" + err), 2);
  for (const char* part :
       {"64 GiB", "4 ranks with arenas of 16 GiB", "19.07 GiB: ulimit -v", "--arena-gib", "arena_bytes"}) {
    EXPECT_NE(read_text(err).find(part), std::string::npos) << read_text(err);
  }
  EXPECT_EQ(run_shell("ulimit -v 20000000; tilewire " + kSmall + "--ranks 4 --arena-gib 0.5 >/dev/null"), 0);
#endif
  // NOTE: shells count in different units: blocks of 512 or of 1,024 bytes.
  EXPECT_EQ(run_shell("ulimit -f 100; tilewire " + kSmall + "--ranks 4 >/dev/null 2>" + err), 2);
  for (const char* part : {"64 GiB", "ulimit -f", "--arena-gib"}) {
    EXPECT_NE(read_text(err).find(part), std::string::npos) << read_text(err);
  }
}

TEST(StartOfTheCommand, TheLimitOfDescriptorsReachesAllRanksAtOnce) {
  const std::string folder = fresh_folder();
  const auto begin = std::chrono::steady_clock::now();
  // NOTE: a shell at its limit can redirect nothing.
  const std::string life = "(exec >/dev/null 2>" + folder +
                           "/$r; [ $r = 0 ] && ulimit -n 11; RANK=$r WORLD_SIZE=12 TILEWIRE_JOB=" + folder +
                           " tilewire " + kSmall + "); echo code $? >>" + folder + "/$r";
  EXPECT_EQ(run_shell("for r in 0 1 2 3 4 5 6 7 8 9 10 11; do ( " + life + " ) & done; wait"), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  for (int rank = 0; rank < 12; ++rank) {
    const std::string text = read_text(folder + "/" + std::to_string(rank));
    EXPECT_NE(text.find("rank 0 (process"), std::string::npos) << text;
    EXPECT_NE(text.find("the limit is 11: ulimit -n"), std::string::npos) << text;
    EXPECT_NE(text.find("code 2"), std::string::npos) << text;
  }
}

TEST(StartOfTheCommand, LaunchersThatContradictEachOtherAreNamed) {
  const std::string mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 ";
  for (const char* verb : {"bench", "run"}) {
    const std::string args = verb + std::string(" all_reduce -m 8 -n 8 --schedule sequential");
    const Outcome outcome = run_tilewire(args, "RANK=0 WORLD_SIZE=1 " + mpi);
    EXPECT_EQ(outcome.code, 2);
    for (const char* part : {"RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const Outcome far = run_tilewire(kSmall, "RANK=8 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 MASTER_ADDR=10.0.0.1");
  EXPECT_EQ(far.code, 2);
  EXPECT_NE(far.err.find("8 of 16 ranks on this host"), std::string::npos) << far.err;
  const Outcome shell =
      run_tilewire(kSmall + "--ranks 4", "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_PTY_PORT=9");
  EXPECT_EQ(shell.code, 2);
  EXPECT_NE(shell.err.find("SLURM_NTASKS=4"), std::string::npos) << shell.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  const Outcome silent = run_tilewire(kSmall, "RANK=0 WORLD_SIZE=2 TILEWIRE_TIMEOUT_S=0.3 TILEWIRE_JOB=silent");
  EXPECT_EQ(silent.code, 3);
  EXPECT_NE(silent.err.find("RANK=0, WORLD_SIZE=2"), std::string::npos) << silent.err;
}

TEST(StartOfTheCommand, HalfOfALaunchersVariablesIsNamed) {
  for (const auto& [variable, missing] :
       {std::pair{"RANK=0", "WORLD_SIZE is not set, but RANK=0: 2 ranks are started here"},
        {"WORLD_SIZE=2", "RANK is not set, but WORLD_SIZE=2"},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"}}) {
    const Outcome outcome = run_tilewire(kSmall + "--ranks 2", variable);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find(missing), std::string::npos) << outcome.err;
  }
}

TEST(StartOfTheCommand, WhatNeedsNoRanksIgnoresLaunchers) {
  const std::string odd = "RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2";
  const std::string problem = " all_reduce -m 8 -n 8 --schedule sequential --ranks 2";
  for (const std::string& args : {"plan" + problem, "check" + problem, "sim" + problem + " --machine h200x4",
                                  std::string("info"), std::string("--help")}) {
    const Outcome outcome = run_tilewire(args, odd);
    EXPECT_EQ(outcome.code, 0) << args << "\n" << outcome.err;
  }
}

}  // namespace
}  // namespace tilewire::testing
