// JSON fields that had other names in earlier versions.
// Used by json.cpp, which names the new field in its error, and by winners.cpp, which reads old files.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace tilewire {

struct RenamedField {
  std::string_view type;  ///< struct of the field
  std::string_view before;
  std::string_view now;
};

inline constexpr std::array<RenamedField, 4> kRenamedFields{{{"Config", "reduction", "reduce_mode"},
                                                             {"Config", "order", "tile_order"},
                                                             {"Config", "cluster_k", "cluster_split_k"},
                                                             {"CopyEngines", "gate_ns", "doorbell_ns"}}};

/// The new name of a field; nothing if the field was not renamed.
[[nodiscard]] inline std::optional<std::string_view> renamed(std::string_view type, std::string_view name) {
  for (const RenamedField& field : kRenamedFields) {
    if (field.type == type && field.before == name) return field.now;
  }
  return std::nullopt;
}

/// Replace the old field names of `object`, a struct of this type, by the new ones.
[[nodiscard]] inline nlohmann::json with_new_names(nlohmann::json object, std::string_view type) {
  for (const RenamedField& field : kRenamedFields) {
    const auto found = field.type == type ? object.find(field.before) : object.end();
    if (found == object.end()) continue;
    nlohmann::json value = *found;
    object.erase(found);
    object[field.now] = std::move(value);
  }
  return object;
}

}  // namespace tilewire
