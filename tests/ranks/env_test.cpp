// Launchers' environment variables: valid combinations, and contradictions with their error texts.
#include "tilewire/env.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <string>

#include "ranks/plans.hpp"
#include "ranks/processes.hpp"

namespace tilewire {
namespace {

/// Sets variables of launchers until the end of a test.
class Environment {
 public:
  explicit Environment(const std::string& variables) {
    for (const char* name : kNames) unsetenv(name);
    std::istringstream words(variables);
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      setenv(word.substr(0, equals).c_str(), word.substr(equals + 1).c_str(), 1);
    }
  }
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr std::array kNames{"RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "GROUP_WORLD_SIZE",
                                     "TORCHELASTIC_RUN_ID",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "SLURM_STEP_ID",
                                     "SLURM_PROCID",
                                     "SLURM_NTASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_STEP_NUM_NODES",
                                     "SLURM_NNODES",
                                     "SLURM_PTY_PORT",
                                     "SLURM_TASK_PID"};
};

/// "rank of size, local rank", or the Error's text.
std::string place_in(const std::string& variables) {
  const Environment environment(variables);
  try {
    const JoinOptions options = join_options_from_env();
    return fmt::format("{} of {}, {}", options.rank, options.num_ranks, options.local_rank);
  } catch (const Error& error) {
    return testing::stream_ordered(error);
  }
}

void expect_place(const std::string& variables, const std::string& expected) {
  EXPECT_EQ(place_in(variables), expected) << variables;
}

void expect_error(const std::string& variables, ErrorKind kind, std::initializer_list<const char*> parts) {
  const std::string text = place_in(variables);
  EXPECT_EQ(text.find(fmt::format("{}: ", static_cast<int>(kind))), 0U) << variables << "\n" << text;
  for (const char* part : parts) EXPECT_NE(text.find(part), text.npos) << variables << "\n" << text << "\n" << part;
}

TEST(Launchers, EachSaysWhichRankThisIs) {
  expect_place("RANK=1 WORLD_SIZE=2", "1 of 2, -1");
  expect_place("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "1 of 2, 1");
  expect_place(
      "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=2 OMPI_COMM_WORLD_LOCAL_SIZE=3",
      "2 of 3, 2");
  expect_place("PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3", "2 of 3, 2");
  expect_place("SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=3 SLURM_NNODES=1", "3 of 4, 3");
  expect_place(
      "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_NNODES=2",
      "3 of 4, -1");
}

TEST(Launchers, WithinEachOtherTheyAreGood) {
  const std::string job_step = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 ";
  // A script that says the same once more.
  expect_place("RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1",
               "1 of 2, 1");
  expect_place("RANK=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 LOCAL_RANK=1", "1 of 2, 1");
  expect_place("RANK=0 WORLD_SIZE=2 " + job_step, "0 of 2, -1");
  // A script that shows each rank one GPU.
  expect_place("LOCAL_RANK=0 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1", "1 of 2, 0");
  // torchrun, one on each node of a step, and one alone in a step of several.
  const std::string torchrun = "TORCHELASTIC_RUN_ID=x RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 LOCAL_WORLD_SIZE=4 ";
  expect_place(torchrun + "GROUP_WORLD_SIZE=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1", "3 of 4, 3");
  expect_place(torchrun + job_step + "SLURM_LOCALID=0", "3 of 4, 3");
  expect_place(torchrun + "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "3 of 4, 3");
  // torchrun in a batch script, which is no job step.
  expect_place("RANK=1 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=8", "1 of 2, -1");
  // mpirun in an allocation, its daemons started by srun, which speaks PMI.
  expect_place("OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=0 PMI_SIZE=2 " + job_step, "3 of 4, -1");
  expect_place("RANK=3 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 " + job_step, "3 of 4, -1");
  // Processes that a script starts within one task, and in srun's shell.
  expect_place("RANK=1 WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1", "1 of 2, -1");
  expect_place("RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "1 of 2, -1");
  expect_place("RANK=1 WORLD_SIZE=4 " + job_step + "SLURM_STEP_NUM_NODES=2", "1 of 4, -1");
  expect_place("RANK=1 WORLD_SIZE=2 SLURM_PTY_PORT=5 " + job_step, "1 of 2, -1");
  expect_place("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 SLURM_PTY_PORT=5 " + job_step, "1 of 4, -1");
  // srun's own task with a terminal.
  expect_place(fmt::format("SLURM_PTY_PORT=5 SLURM_TASK_PID={} {}", getpid(), job_step), "0 of 2, -1");
  expect_place("RANK=01 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=02", "1 of 2, -1");
  // Variables that are not read may have invalid values.
  expect_place("RANK=1 WORLD_SIZE=2 PMI_RANK=x", "1 of 2, -1");
}

TEST(Launchers, ContradictionsAreNamedWithBothValues) {
  const ErrorKind wrong = ErrorKind::invalid_input;
  for (const char* rank : {"0", "1"}) {
    const std::string mpirun =
        fmt::format(" OMPI_COMM_WORLD_RANK={} OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2", rank);
    expect_error("RANK=0 WORLD_SIZE=1" + mpirun, wrong,
                 {"RANK=0 and WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=", "OMPI_COMM_WORLD_SIZE=2"});
    expect_error("RANK=0 WORLD_SIZE=4" + mpirun, wrong, {"RANK=0 and WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=2"});
    expect_error("RANK=3" + mpirun, wrong, {"RANK=3", "OMPI_COMM_WORLD_RANK="});
    expect_error("WORLD_SIZE=3" + mpirun, wrong, {"WORLD_SIZE=3", "OMPI_COMM_WORLD_SIZE=2"});
  }
  expect_error("RANK=0 WORLD_SIZE=1 PMI_RANK=1 PMI_SIZE=2", wrong,
               {"RANK=0", "WORLD_SIZE=1", "PMI_RANK=1", "PMI_SIZE=2"});
  expect_error("RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2", wrong, {"RANK=0", "PMI_RANK=1"});
  expect_error("RANK=0 WORLD_SIZE=1 SLURM_STEP_ID=3 SLURM_PROCID=1 SLURM_NTASKS=2", wrong,
               {"WORLD_SIZE=1", "SLURM_PROCID=1", "SLURM_NTASKS=2"});
  expect_error("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 PMI_RANK=1 PMI_SIZE=2", wrong,
               {"OMPI_COMM_WORLD_SIZE=3", "PMI_SIZE=2"});
  expect_error("RANK=0", wrong, {"WORLD_SIZE is not set", "RANK=0"});
  expect_error("WORLD_SIZE=2", wrong, {"RANK is not set", "WORLD_SIZE=2"});
  expect_error("PMI_RANK=0", wrong, {"PMI_SIZE is not set", "PMI_RANK=0"});
  expect_error("RANK=2 WORLD_SIZE=2", wrong, {"RANK 2 of WORLD_SIZE 2"});
  expect_error("OMPI_COMM_WORLD_RANK=x OMPI_COMM_WORLD_SIZE=2", wrong,
               {"OMPI_COMM_WORLD_RANK: want a number, got 'x'"});
  expect_error("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", wrong, {"LOCAL_WORLD_SIZE=4", "WORLD_SIZE=2"});
}

TEST(Launchers, TheInteractiveShellOfSrunIsNamed) {
  for (const std::string pmi : {"", " PMI_RANK=0 PMI_SIZE=4"}) {
    expect_error("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_PTY_PORT=40000 SLURM_TASK_PID=1" + pmi,
                 ErrorKind::invalid_input, {"SLURM_PTY_PORT=40000", "=4", "interactive shell"});
  }
  expect_error("SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1",
               ErrorKind::invalid_input, {"SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=1", "interactive shell"});
}

TEST(Launchers, ATeamIsOneHost) {
  const ErrorKind beyond = ErrorKind::unsupported;
  expect_error("RANK=8 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8 MASTER_ADDR=10.0.0.1", beyond,
               {"8 of 16 ranks on this host", "LOCAL_WORLD_SIZE=8", "WORLD_SIZE=16", "one host"});
  expect_error("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=3", beyond,
               {"3 of 4 ranks on this host", "OMPI_COMM_WORLD_LOCAL_SIZE=3"});
  expect_error("RANK=0 WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=1", beyond,
               {"1 of 4 ranks on this host"});
  expect_error("PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", beyond, {"2 of 4", "MPI_LOCALNRANKS=2"});
  expect_error("SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_NNODES=2", beyond,
               {"4 ranks on 2 hosts", "SLURM_NNODES=2"});
  expect_error(
      "TORCHELASTIC_RUN_ID=x RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=2",
      beyond, {"2 of 4 ranks on this host"});
}

}  // namespace
}  // namespace tilewire
