// JSON as text: reading what people and other programs wrote, writing what they read, values in messages.
// Used by everything that reads or writes JSON; no other file calls the JSON library for that
// (tests/tools/source_rules_test.py), since its parser takes repeated keys and its writer throws or overflows the
// stack.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewire {

/// Read JSON. Throws Error(invalid_input), "<what>: malformed JSON: ...", for text that is none or not UTF-8, that is
/// nested deeper than 100 levels, or that has a key twice in one object.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& what);

/// The value that a flag gives: JSON, or else the text itself, as in `tile_order=naive`.
[[nodiscard]] nlohmann::json json_or_text(const std::string& text);

/// Write JSON, on one line or with this indent. Bytes that are not UTF-8, from file names and flags, become U+FFFD.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);

/// A value in a message: its JSON on one line, 60 bytes of it at most, however large or deep it is.
[[nodiscard]] std::string shown(const nlohmann::json& value);

/// A name in a message: as `shown`, without quotes.
[[nodiscard]] std::string shown_name(const std::string& name);

/// A value as a flag takes it: text without quotes, anything else as JSON.
[[nodiscard]] std::string plain_text(const nlohmann::json& value);

/// The text with U+FFFD for bytes that are not UTF-8.
[[nodiscard]] std::string valid_utf8(const std::string& text);

}  // namespace tilewire
