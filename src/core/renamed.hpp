// Fields of JSON that had another name before.
// Used by json.cpp, which refuses old names with the new ones, and by winners.cpp, which reads old files.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace tilewire {

struct RenamedField {
  std::string_view type;  ///< struct that has it
  std::string_view before;
  std::string_view now;
};

inline constexpr std::array<RenamedField, 4> kRenamedFields{{{"Config", "reduction", "reduce_mode"},
                                                             {"Config", "order", "tile_order"},
                                                             {"Config", "cluster_k", "cluster_split_k"},
                                                             {"CopyEngines", "gate_ns", "doorbell_ns"}}};

/// The new name of a field, or nothing where it never had another.
[[nodiscard]] inline std::optional<std::string_view> renamed(std::string_view type, std::string_view name) {
  for (const RenamedField& field : kRenamedFields) {
    if (field.type == type && field.before == name) return field.now;
  }
  return std::nullopt;
}

/// `object`, a struct of this type, with new names in place of old ones.
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
