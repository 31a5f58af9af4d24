// JSON as text: parsing untrusted text, writing, and values in messages.
// Used by all code that reads or writes JSON. Other files do not call the JSON library for that
// (tests/tools/source_rules_test.py), because its parser accepts repeated keys and its writer throws or overflows the
// stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewire {

/// Parse JSON. Throws Error(invalid_input), "<what>: malformed JSON: ...", if the text is not JSON or not UTF-8, is
/// nested deeper than 100 levels, or has a key twice in one object.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& what);

/// Parse the value of a flag: JSON, else the text itself, as in `tile_order=naive`.
[[nodiscard]] nlohmann::json json_or_text(const std::string& text);

/// Write JSON, on one line or with this indent. Bytes that are not UTF-8 (from file names and flags) become U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);

/// A value in a message: the first 60 bytes of its JSON on one line. Works for values of any size and depth.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// A name in a message: as `shown`, without quotes.
[[nodiscard]] std::string shown_name(const std::string& name);

/// A value as a flag accepts it: a string without quotes, anything else as JSON.
[[nodiscard]] std::string plain_text(const nlohmann::json& value);

/// Replace bytes that are not UTF-8 by U+FFFD.
[[nodiscard]] std::string valid_utf8(const std::string& text);

}  // namespace tilewire
