// The one reader and writer of environment variables.
// Called by the bootstrap, the tuner and the command line.
#pragma once

#include <optional>
#include <string>

namespace tilewire::env {

/// Which process of a team a launcher made this one.
struct Place {
  int rank = 0;
  int num_ranks = 1;
  int local_rank = -1;   ///< among those of this host; -1 = unknown
  std::string source{};  ///< the variables that say so: "RANK=0, WORLD_SIZE=2"
};

/// RANK, WORLD_SIZE and LOCAL_RANK, else what Open MPI, a launcher of PMI (MPICH, Intel MPI) or a job step of SLURM
/// says by variables of its own. LOCAL_RANK counts beside all of these. Nothing where no rank and number of ranks are
/// set together. Throws Error(invalid_input) that names variables and values where one is malformed, or where launchers
/// contradict each other; Error(unsupported) where some of the ranks are on other hosts.
[[nodiscard]] std::optional<Place> place();
/// Where there is no place: what is set of one, "WORLD_SIZE is not set, but RANK=0"; nothing where nothing is.
[[nodiscard]] std::optional<std::string> half_place();
/// TILEWIRE_JOB, else a name formed from what the launcher sets (TORCHELASTIC_RUN_ID, PMIX_NAMESPACE,
/// SLURM_JOB_ID with MASTER_PORT or SLURM_STEP_ID, and TORCHELASTIC_RESTART_COUNT), else "default".
[[nodiscard]] std::string job();
/// TILEWIRE_TIMEOUT_S: deadline of every wait in seconds, default 30, of ranks that join by their environment and of
/// the command line. Programs that launch ranks say it in LaunchOptions.
[[nodiscard]] double timeout_s();
/// CUDA_DEVICE_MAX_CONNECTIONS: queues of a GPU, where that is set.
[[nodiscard]] std::optional<int> device_connections();
/// Give another library's variable a value, unless it has one. NOTE: not while other threads read variables.
void set_default(const char* name, const char* value);
/// TILEWIRE_TUNER_FILE, else $XDG_CACHE_HOME or ~/.cache, /tilewire/tuner.json; empty where there is no home.
[[nodiscard]] std::string tuner_file();

}  // namespace tilewire::env
