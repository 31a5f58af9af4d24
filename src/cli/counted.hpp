// A number and what it counts, in the singular or the plural.
// Used by the verbs' tables and messages.
#pragma once

#include <concepts>
#include <string>

namespace tilewire::cli {

/// "1 rank", "2 ranks".
[[nodiscard]] std::string counted(std::integral auto count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace tilewire::cli
