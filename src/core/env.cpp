// The one reader and writer of environment variables.
// Called by the bootstrap, the tuner and the command line.
#include "tilewire/env.hpp"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "core/text.hpp"

namespace tilewire::env {
namespace {

std::optional<std::string> read(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

template <class Number>
Number to_number(const char* name, const std::string& text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(status == std::errc{} && end == text.data() + text.size(), "{}: want a number, got '{}'", name, text);
  return number;
}

std::optional<int> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto value = read(name)) return to_number<int>(name, *value);
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> rank() {
  if (auto number = first_number({"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})) return number;
  return read("SLURM_STEP_ID") ? first_number({"SLURM_PROCID"}) : std::nullopt;
}

std::optional<int> num_ranks() {
  if (auto number = first_number({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})) return number;
  return read("SLURM_STEP_ID") ? first_number({"SLURM_NTASKS"}) : std::nullopt;
}

std::optional<int> local_rank() {
  if (auto number = first_number({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"})) return number;
  return read("SLURM_STEP_ID") ? first_number({"SLURM_LOCALID"}) : std::nullopt;
}

std::string job() {
  if (auto name = read("TILEWIRE_JOB")) return *name;
  std::string job;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID", "MASTER_PORT", "SLURM_STEP_ID",
                           "TORCHELASTIC_RESTART_COUNT"}) {
    if (const auto value = read(name)) job += (job.empty() ? "" : ".") + *value;
  }
  return job.empty() ? "default" : job;
}

std::optional<int> device_connections() { return first_number({"CUDA_DEVICE_MAX_CONNECTIONS"}); }

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
