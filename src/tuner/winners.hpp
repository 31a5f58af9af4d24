// The file that remembers which config won for which problem on which machine.
// Read and written by the tuner, on rank 0.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tilewire/config.hpp"
#include "tilewire/problem.hpp"

namespace tilewire::tuner {

/// The median time of one candidate; the slowest rank counts.
struct Timing {
  Config config;
  double us = 0;
  int64_t samples = 0;

  bool operator==(const Timing&) const = default;
};

/// A remembered decision.
struct Winner {
  nlohmann::json key;
  Config config;
  std::vector<Timing> timings;  ///< of all candidates that were measured
  bool quick = false;           ///< they were the first few, not all (Tuning::quick)

  bool operator==(const Winner&) const = default;
};

/// What a lookup found, and what is to be told about the file: that it was corrupt, say.
struct Recalled {
  std::optional<Winner> winner;
  std::string note;
};

/// What must be equal for a winner to be used again: version of tilewire, backend, machine, ranks and the
/// problem, with M rounded up to a power of two; on GPUs, where tiles are cut to fit some rows, M below 1,024 is
/// rounded up to a multiple of 8 instead.
[[nodiscard]] nlohmann::json key_of(const std::string& backend, const std::string& machine, int num_ranks,
                                    const Problem& problem, bool on_gpus = false);
/// "Intel(R) Xeon(R) ..., 2 cores"; and the `hardware` of a group, where it is not the host.
[[nodiscard]] std::string machine_name(const std::string& hardware = {});

[[nodiscard]] nlohmann::json to_json(const Winner& winner);
/// Throws where a field is missing or wrong.
[[nodiscard]] Winner winner_from_json(const nlohmann::json& json);

/// Look a key up, as the tuning allows: `full` takes no winner of a quick measurement, and `off` the nearest where M is
/// in another bucket, at most kFarthest times larger or smaller. A missing file is no news; one that cannot be read, or
/// is corrupt, is ignored, and `note` says why.
[[nodiscard]] Recalled recall(const std::string& file, const nlohmann::json& key, Tuning tuning = Tuning::full);
inline constexpr double kFarthest = 4;
/// Add or replace a winner, so that several processes can do it at once and a reader never sees half a
/// file. A corrupt file is replaced; one that cannot be read now (permissions, a stale handle) is left alone. Returns
/// nothing, or why it could not.
[[nodiscard]] std::optional<std::string> remember(const std::string& file, const Winner& winner);

}  // namespace tilewire::tuner
