// The one reader and writer of environment variables.
// Called by the bootstrap, the tuner and the command line.
#pragma once

#include <optional>
#include <string>

namespace tilewire::env {

/// The place of this process in a team, as a launcher set it.
struct Place {
  int rank = 0;
  int num_ranks = 1;
  int local_rank = -1;   ///< index on this host; -1 = unknown
  std::string source{};  ///< the variables read: "RANK=0, WORLD_SIZE=2"
};

/// Read RANK, WORLD_SIZE and LOCAL_RANK, else the variables of Open MPI, a PMI launcher (MPICH, Intel MPI) or a SLURM
/// job step. LOCAL_RANK is used with all of them. Returns nothing if no launcher sets both the rank and the number of
/// ranks. Throws Error(invalid_input) with variables and values if one is malformed or if launchers contradict each
/// other; Error(unsupported) if some ranks are on other hosts.
[[nodiscard]] std::optional<Place> place();
/// If `place` is nothing: the part of it that is set, "WORLD_SIZE is not set, but RANK=0"; nothing if no part is set.
[[nodiscard]] std::optional<std::string> half_place();
/// TILEWIRE_JOB, else a name made of the launcher's variables (TORCHELASTIC_RUN_ID, PMIX_NAMESPACE, SLURM_JOB_ID with
/// MASTER_PORT or SLURM_STEP_ID, and TORCHELASTIC_RESTART_COUNT), else "default".
[[nodiscard]] std::string job();
/// TILEWIRE_TIMEOUT_S: deadline of every wait in seconds, default 30. Used by ranks that join from their environment
/// and by the command line. Programs that launch ranks set LaunchOptions::timeout_s.
[[nodiscard]] double timeout_s();
/// CUDA_DEVICE_MAX_CONNECTIONS: hardware queues of a GPU; nothing if it is not set.
[[nodiscard]] std::optional<int> device_connections();
/// Set another library's variable unless it is set. NOTE: not while other threads read environment variables.
void set_default(const char* name, const char* value);
/// TILEWIRE_TUNER_FILE, else tilewire/tuner.json in $XDG_CACHE_HOME or ~/.cache; empty if there is no home.
[[nodiscard]] std::string tuner_file();

}  // namespace tilewire::env
