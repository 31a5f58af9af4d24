// The one reader and writer of environment variables.
// Called by the bootstrap, the tuner and the command line.
#include "tilewire/env.hpp"

#include <cstdlib>

#include "core/variables.hpp"

namespace tilewire::env {

std::string job() {
  if (auto name = read("TILEWIRE_JOB")) return *name;
  std::string job;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID", "MASTER_PORT", "SLURM_STEP_ID",
                           "TORCHELASTIC_RESTART_COUNT"}) {
    if (const auto value = read(name)) job += (job.empty() ? "" : ".") + *value;
  }
  return job.empty() ? "default" : job;
}

std::optional<int> device_connections() {
  constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
  const auto value = read(kName);
  return value ? std::optional(to_number<int>(kName, *value)) : std::nullopt;
}

void set_default(const char* name, const char* value) { ::setenv(name, value, 0); }

double timeout_s() {
  const auto value = read("TILEWIRE_TIMEOUT_S");
  if (!value) return 30;
  const auto seconds = to_number<double>("TILEWIRE_TIMEOUT_S", *value);
  require(seconds > 0, "TILEWIRE_TIMEOUT_S: want more than 0, got {}", *value);
  return seconds;
}

std::string tuner_file() {
  if (auto file = read("TILEWIRE_TUNER_FILE")) return *file;
  if (auto cache = read("XDG_CACHE_HOME")) return *cache + "/tilewire/tuner.json";
  if (auto home = read("HOME")) return *home + "/.cache/tilewire/tuner.json";
  return "";
}

}  // namespace tilewire::env
