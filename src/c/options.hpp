// Reads and writes structs of options whose version may be older or newer than the library's.
// Used by groups.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "c/errors.hpp"

namespace tilewire::c {

/// Throw Error(invalid_input) unless a struct of `size` bytes has at least the fields of the first version (`least`
/// bytes).
template <class Options>
void require_size(uint64_t size, size_t least, const char* function) {
  require(size >= least && size <= 4096, "{}: size = {}: want the size of the struct, {}", function, size,
          sizeof(Options));
}

/// Convert a caller's options to this library's version. Fields that the caller's header lacks are zero.
template <class Options>
Options read_options(const Options& from, size_t least, const char* function) {
  require_size<Options>(from.size, least, function);
  Options known{};
  std::memcpy(&known, &from, std::min<size_t>(from.size, sizeof known));
  const auto* bytes = reinterpret_cast<const unsigned char*>(&from);
  const bool more = from.size > sizeof known &&
                    std::any_of(bytes + sizeof known, bytes + from.size, [](unsigned char byte) { return byte != 0; });
  require(!more, "{}: {} bytes of options, of which this library knows {}; the others are not zero", function,
          from.size, sizeof known);
  known.size = sizeof known;
  return known;
}

/// Fill those of a caller's options that its header has.
template <class Options>
void write_options(Options from, Options& to, size_t least, const char* function) {
  require_size<Options>(to.size, least, function);
  from.size = to.size;
  std::memcpy(&to, &from, std::min<size_t>(to.size, sizeof from));
  if (to.size > sizeof from) std::memset(reinterpret_cast<char*>(&to) + sizeof from, 0, to.size - sizeof from);
}

}  // namespace tilewire::c
