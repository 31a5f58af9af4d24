// Facts about this machine: CPU model and usable cores.
// Used by the tuner's file, the bench's JSON and `tilewire info`.
#include "core/machine.hpp"

#include <sstream>

#include "core/cores.hpp"
#include "core/text_file.hpp"

namespace tilewire {

std::string cpu_model() {
  std::istringstream file(read_text_file("/proc/cpuinfo").text);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int usable_cores() {
  const Cores mine = my_cores();
  return share_of_cores({&mine, 1}, 0);
}

}  // namespace tilewire
