// Reads text files.
// Used by the command, the tuner, and code that reads files of the system.
#pragma once

#include <string>

#include "core/system_call.hpp"

namespace tilewire {

/// Content of a file, or the failed call.
struct TextFile {
  std::string text;
  SystemCall call;
  bool opened = true;  ///< false: `call` is the failed open()

  [[nodiscard]] bool missing() const { return call.error == ENOENT; }
  /// Text of the failure: "cannot open it: Permission denied".
  [[nodiscard]] std::string why() const;
};

/// Read a file, a pipe or a device to its end. More than 2 GiB is an error.
[[nodiscard]] TextFile read_text_file(const std::string& path);

}  // namespace tilewire
