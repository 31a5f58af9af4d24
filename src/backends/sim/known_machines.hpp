// The known machines as the texts of their JSON files.
// Used by machine.cpp and tests.
#pragma once

#include <span>

namespace tilewire::sim {

struct KnownMachine {
  const char* name;
  const char* json;
};

[[nodiscard]] std::span<const KnownMachine> known_machines();

}  // namespace tilewire::sim
