// JSON (nlohmann-json) of every plain struct. Writers omit fields that have their default, except in machines. Readers
// are strict:
// an unknown field, a wrong type or an unknown name throws Error(invalid_input). Used for plans, configs and machines.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tilewire/config.hpp"
#include "tilewire/print.hpp"
#include "tilewire/sim/sim.hpp"

namespace tilewire {

#define TILEWIRE_DECLARE(T)                           \
  void to_json(nlohmann::json& json, const T& value); \
  void from_json(const nlohmann::json& json, T& value);
TILEWIRE_FOR_EACH_ENUM(TILEWIRE_DECLARE)
TILEWIRE_FOR_EACH_STRUCT(TILEWIRE_DECLARE)
#undef TILEWIRE_DECLARE

/// Parse text as JSON of a T. Throws Error(invalid_input) with the fault and its place.
template <class T>
[[nodiscard]] T from_json_text(const std::string& text);

/// Set one field by name, as `--set` does: "tile_m", "256". Throws Error(invalid_input) with the known knobs, or with
/// the form of value that the knob needs.
void set_knob(Config& config, const std::string& name, const std::string& value);

}  // namespace tilewire
