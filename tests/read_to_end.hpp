// The text of a pipe, read until all writers have closed it.
// Used by tests of ranks and of GPUs that start child processes.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace tilewire::testing {

/// Closes the descriptor at the end.
[[nodiscard]] inline std::string read_to_end(int descriptor) {
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t size = 0; (size = ::read(descriptor, bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<size_t>(size));
  }
  ::close(descriptor);
  return text;
}

}  // namespace tilewire::testing
