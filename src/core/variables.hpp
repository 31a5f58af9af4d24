// Reads one environment variable, as text or as a number.
// Used by env.cpp and launchers.cpp.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/text.hpp"

namespace tilewire::env {

/// The value of a variable; nothing if it is not set or empty.
[[nodiscard]] inline std::optional<std::string> read(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// Throws Error(invalid_input) with the variable's name if `text` is not a number.
template <class Number>
[[nodiscard]] Number to_number(const char* name, const std::string& text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(status == std::errc{} && end == text.data() + text.size(), "{}: want a number, got '{}'", name, text);
  return number;
}

}  // namespace tilewire::env
