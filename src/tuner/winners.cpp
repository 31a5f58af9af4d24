// The tuner's file: one JSON object, replaced as a whole under a lock.
// Called by tuner.cpp on rank 0, and by the tests.
#include "tuner/winners.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

#include "backends/host/gemm.hpp"
#include "core/descriptor.hpp"
#include "core/json_text.hpp"
#include "core/machine.hpp"
#include "core/output_file.hpp"
#include "core/renamed.hpp"
#include "core/text.hpp"
#include "core/text_file.hpp"
#include "tilewire/json.hpp"

namespace tilewire::tuner {
namespace {

using nlohmann::json;

constexpr int kFormat = 2;
constexpr auto kLockPatience = std::chrono::seconds(2);

/// The file's text; nothing where there is no file. Throws Error(invalid_input) where it is there and cannot be read
/// now.
std::optional<std::string> read_content(const std::string& file) {
  TextFile read = read_text_file(file);
  if (read.missing()) return std::nullopt;
  require(read.call.ok(), "it cannot be read now: {}", read.call.why());
  return std::move(read.text);
}

/// Throws Error(invalid_input) where it is not JSON.
json parse_content(const std::string& text) { return parse_json(text, "its content"); }

/// The winners in it. Throws Error(invalid_input) where it is not of a file of ours.
json winners_of(const json& content) {
  require(
      content.is_object() && content.contains("format") && content.contains("winners") && content["winners"].is_array(),
      "it is not a file of tuned winners");
  require(content["format"] == kFormat, "its format is {}, not {}", shown(content["format"]), kFormat);
  return content["winners"];
}

/// The winners to keep when one is added: none of a file that is corrupt, as whoever looked the key up has said so.
/// Throws Error(invalid_input) for a file of a newer format.
json winners_to_keep(const std::string& text) {
  json content;
  try {
    content = parse_content(text);
  } catch (const Error&) {
    return json::array();
  }
  const bool says = content.is_object() && content.contains("format") && content["format"].is_number_integer();
  const int64_t format = says ? content["format"].get<int64_t>() : 0;
  require(format <= kFormat, "it is of format {}, newer than {}", format, kFormat);
  try {
    return winners_of(content);
  } catch (const Error&) {
    return json::array();
  }
}

/// An advisory lock on a file beside the one that it guards.
class FileLock {
 public:
  explicit FileLock(const std::string& path) {
    NewDescriptor opened =
        new_descriptor([&] { return ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOCTTY, 0666); });
    require(opened.call.ok(), "cannot open {}: {}", path, opened.call.why());
    file_ = std::move(opened.descriptor);
    const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
    while (true) {
      const SystemCall locked = system_call([&] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); });
      if (locked.ok()) return;
      require(locked.error == EWOULDBLOCK, "cannot lock {}: {}", path, locked.why());
      require(std::chrono::steady_clock::now() <= deadline, "{} is held by another process", path);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  Descriptor file_;
};

/// By which factor the rows of two keys differ that are equal but for them; infinite where more is different.
double distance(json x, json y) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  std::array<double, 2> rows{};
  for (size_t i = 0; i < 2; ++i) {
    json& problem = (i == 0 ? x : y)["problem"];
    if (!problem.is_object() || !problem.contains("m") || !problem["m"].is_number()) return kFar;
    rows[i] = problem["m"].get<double>();
    problem.erase("m");
  }
  if (x != y || rows[0] <= 0 || rows[1] <= 0) return kFar;
  return std::max(rows[0] / rows[1], rows[1] / rows[0]);
}

}  // namespace

json key_of(const std::string& backend, const std::string& machine, int num_ranks, const Problem& problem,
            bool on_gpus) {
  Problem bucket = problem;
  bucket.constant.clear();
  constexpr int64_t kManyRows = 1024;  // which have other candidates
  if (on_gpus && problem.m < kManyRows) {
    bucket.m = std::min((problem.m + 7) / 8 * 8, kManyRows - 1);
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
  json all = {{"key", winner.key}, {"config", winner.config}, {"timings", timings}};
  if (winner.quick) all["quick"] = true;
  return all;
}

/// NOTE: files that older versions wrote are read, too.
Config config_from_json(const json& from) { return with_new_names(from.at("config"), "Config").get<Config>(); }

Winner winner_from_json(const json& from) {
  Winner winner{
      .key = from.at("key"), .config = config_from_json(from), .timings = {}, .quick = from.value("quick", false)};
  for (const json& timing : from.at("timings")) {
    winner.timings.push_back({config_from_json(timing), timing.at("us"), timing.at("samples")});
  }
  return winner;
}

Recalled recall(const std::string& file, const json& key, Tuning tuning) {
  try {
    const std::optional<std::string> text = read_content(file);
    if (!text) return {};
    const json winners = winners_of(parse_content(*text));
    const json* nearest = nullptr;
    double least = kFarthest;
    for (const json& winner : winners) {
      const bool same = winner.at("key") == key;
      if (!same && tuning != Tuning::off) continue;
      if (tuning == Tuning::full && winner.value("quick", false)) continue;
      const double far = same ? 1 : distance(winner["key"], key);
      if (far > least || (far == least && nearest != nullptr)) continue;
      nearest = &winner;
      least = far;
    }
    if (nearest == nullptr) return {};
    return {winner_from_json(*nearest), ""};
  } catch (const std::exception& error) {
    return {{}, fmt::format("{} was ignored: {}", file, error.what())};
  }
}

std::optional<std::string> remember(const std::string& file, const Winner& winner) {
  try {
    require(!file.empty(), "there is no home directory to keep it in");
    const OutputPlace place = output_place(file);
    require(place.found.ok(), "{}", place.found.why());
    require(!place.exists || place.regular(), "it is not a regular file");
    const auto folder = std::filesystem::path(place.path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder);
    if (place.exists) check_output(file);
    const FileLock lock(place.path + ".lock");
    const std::optional<std::string> text = read_content(file);
    json winners = text ? winners_to_keep(*text) : json::array();
    const auto same_key = [&](const json& other) { return !other.contains("key") || other["key"] == winner.key; };
    winners.erase(std::remove_if(winners.begin(), winners.end(), same_key), winners.end());
    winners.push_back(to_json(winner));
    write_output(file, json_text({{"format", kFormat}, {"winners", winners}}, 1));
    return std::nullopt;
  } catch (const std::exception& error) {
    const std::string name = file + ": ";
    std::string_view why = error.what();
    if (why.starts_with(name)) why.remove_prefix(name.size());
    return fmt::format("{} was not written: {}", file.empty() ? "the winner" : file, why);
  }
}

}  // namespace tilewire::tuner
