// Texts that are read from files.
// Used by the command, the tuner, and whatever reads the system's files.
#pragma once

#include <string>

#include "core/system_call.hpp"

namespace tilewire {

/// What a file holds, or why it could not be read.
struct TextFile {
  std::string text;
  SystemCall call;
  bool opened = true;  ///< false: that is the call which failed

  [[nodiscard]] bool missing() const { return call.error == ENOENT; }
  /// Why it could not be read: "cannot open it: Permission denied".
  [[nodiscard]] std::string why() const;
};

/// Read a file, a pipe or a device to its end, which must come within 2 GiB.
[[nodiscard]] TextFile read_text_file(const std::string& path);

}  // namespace tilewire
