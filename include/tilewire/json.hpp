// JSON both ways for every plain struct (nlohmann-json). Fields that have their default are left out, but for machines;
// reading is strict: an unknown field, a wrong type or an unknown name is an Error(invalid_input).
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

/// Parse text that holds a T. Throws Error(invalid_input) with what is wrong and where.
template <class T>
[[nodiscard]] T from_json_text(const std::string& text);

/// Set one field by name, as `--set` does: "tile_m", "256". Throws Error(invalid_input) that lists the
/// knobs or says what the value should be.
void set_knob(Config& config, const std::string& name, const std::string& value);

}  // namespace tilewire
