// Reads text files.
// Called through text_file.hpp.
#include "core/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "core/descriptor.hpp"

namespace tilewire {

std::string TextFile::why() const {
  if (call.error == EISDIR) return "it is a directory";
  return fmt::format("cannot {} it: {}", opened ? "read" : "open", call.why());
}

TextFile read_text_file(const std::string& path) {
  constexpr size_t kPiece = 1 << 16;
  constexpr size_t kMost = size_t{2} << 30;  // limit for endless devices
  const NewDescriptor file = new_descriptor([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY); });
  TextFile read{.text = "", .call = file.call, .opened = file.call.ok()};
  if (!read.opened) return read;
  std::vector<char> piece(kPiece);
  while (true) {
    read.call = system_call([&] { return ::read(file.descriptor.get(), piece.data(), piece.size()); });
    if (!read.call.ok() || read.call.value == 0) return read;
    read.text.append(piece.data(), static_cast<size_t>(read.call.value));
    if (read.text.size() <= kMost) continue;
    read.call = {-1, EFBIG};
    return read;
  }
}

}  // namespace tilewire
