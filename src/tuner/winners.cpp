// The tuner's file: one JSON object, replaced as a whole under a lock.
// Called by tuner.cpp on rank 0, and by the tests.
#include "tuner/winners.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/host/gemm.hpp"
#include "core/machine.hpp"
#include "core/text.hpp"
#include "schedules/gpu_tiles.hpp"
#include "tilewire/json.hpp"

namespace tilewire::tuner {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;
constexpr auto kLockPatience = std::chrono::seconds(2);

/// The file's winners. Throws Error(invalid_input) where it is not a file of ours.
json read_winners(const std::string& file) {
  std::ifstream in(file);
  if (!in) return json::array();
  const json content = json::parse(in, nullptr, false);
  require(!content.is_discarded(), "it is not JSON");
  require(
      content.is_object() && content.contains("format") && content.contains("winners") && content["winners"].is_array(),
      "it is not a file of tuned winners");
  require(content["format"] == kFormat, "its format is {}, not {}", content["format"].dump(), kFormat);
  return content["winners"];
}

/// The format that the file says it has; 0 where there is no such file or it says nothing.
int format_of(const std::string& file) {
  std::ifstream in(file);
  const json content = in ? json::parse(in, nullptr, false) : json();
  const bool says = content.is_object() && content.contains("format") && content["format"].is_number_integer();
  return says ? content["format"].get<int>() : 0;
}

/// An advisory lock on a file beside the one that it guards.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    require(fd_ >= 0, "cannot open {}: {}", path, std::strerror(errno));
    const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        close(fd_);
        fail(ErrorKind::invalid_input, "{} is held by another process", path);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { close(fd_); }

 private:
  int fd_;
};

void replace_file(const std::string& file, const std::string& content) {
  const std::string temporary = fmt::format("{}.{}", file, getpid());
  std::ofstream out(temporary);
  out << content << std::flush;
  const bool written = out.good();
  out.close();
  std::error_code error;
  if (written) std::filesystem::rename(temporary, file, error);
  if (!written || error) std::filesystem::remove(temporary);
  require(written, "cannot write {}", temporary);
  require(!error, "cannot rename {} to {}: {}", temporary, file, error.message());
}

}  // namespace

json key_of(const std::string& backend, const std::string& machine, int num_ranks, const Problem& problem,
            bool on_gpus) {
  Problem bucket = problem;
  if (on_gpus && problem.m < kMany) {
    bucket.m = std::min((problem.m + 7) / 8 * 8, kMany - 1);  // kMany rows have other candidates
  } else if (problem.m > 0) {
    bucket.m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(problem.m)));
  }
  return {{"tilewire", TILEWIRE_VERSION},
          {"backend", backend},
          {"machine", machine},
          {"ranks", num_ranks},
          {"caches", on_gpus ? "cold" : "warm"},  // while candidates are measured
          {"problem", bucket}};
}

std::string machine_name(const std::string& hardware) {
  const std::string host = fmt::format("{}, {} cores, {}", cpu_model(), usable_cores(), host::host_gemm_library());
  return hardware.empty() ? host : fmt::format("{}, {}", host, hardware);
}

json to_json(const Winner& winner) {
  json timings = json::array();
  for (const Timing& timing : winner.timings) {
    timings.push_back({{"config", timing.config}, {"us", timing.us}, {"samples", timing.samples}});
  }
  return {{"key", winner.key}, {"config", winner.config}, {"timings", timings}};
}

Winner winner_from_json(const json& from) {
  Winner winner{.key = from.at("key"), .config = from.at("config").get<Config>()};
  for (const json& timing : from.at("timings")) {
    winner.timings.push_back({timing.at("config").get<Config>(), timing.at("us"), timing.at("samples")});
  }
  return winner;
}

Recalled recall(const std::string& file, const json& key) {
  try {
    for (const json& winner : read_winners(file)) {
      if (winner.at("key") == key) return {winner_from_json(winner), ""};
    }
    return {};
  } catch (const std::exception& error) {
    return {{}, fmt::format("{} was ignored: {}", file, error.what())};
  }
}

std::optional<std::string> remember(const std::string& file, const Winner& winner) {
  try {
    require(!file.empty(), "there is no home directory to keep it in");
    // NOTE: a rename would put a file in the place of a device.
    require(!std::filesystem::exists(file) || std::filesystem::is_regular_file(file), "it is not a regular file");
    const auto folder = std::filesystem::path(file).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    const FileLock lock(file + ".lock");
    json winners = json::array();
    require(format_of(file) <= kFormat, "it is of format {}, newer than {}", format_of(file), kFormat);
    try {
      winners = read_winners(file);
    } catch (const Error&) {
      // NOTE: whoever looked the key up has said that the file is corrupt; the new one takes its place.
    }
    const auto same_key = [&](const json& other) { return !other.contains("key") || other["key"] == winner.key; };
    winners.erase(std::remove_if(winners.begin(), winners.end(), same_key), winners.end());
    winners.push_back(to_json(winner));
    replace_file(file, json{{"format", kFormat}, {"winners", winners}}.dump(1));
    return std::nullopt;
  } catch (const std::exception& error) {
    return fmt::format("{} was not written: {}", file, error.what());
  }
}

}  // namespace tilewire::tuner
