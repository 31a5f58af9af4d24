// The tables of shipped winners, as text.
// Called by shipped.cpp; shipped_tables.cpp is made by CMake.
#pragma once

#include <span>

namespace tilewire::tuner {

struct ShippedTable {
  const char* name;  ///< of the target, "h200x2"
  const char* text;  ///< JSON
};

[[nodiscard]] std::span<const ShippedTable> shipped_tables();

}  // namespace tilewire::tuner
