// The one reader and writer of environment variables.
// Called by the bootstrap, the tuner and the command line.
#pragma once

#include <optional>
#include <string>

namespace tilewire::env {

/// RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, whichever is set first, or in a job step SLURM_PROCID: my rank.
[[nodiscard]] std::optional<int> rank();
/// WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE, or in a job step SLURM_NTASKS: number of ranks.
[[nodiscard]] std::optional<int> num_ranks();
/// LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, or in a job step SLURM_LOCALID: my rank on this host.
[[nodiscard]] std::optional<int> local_rank();
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
