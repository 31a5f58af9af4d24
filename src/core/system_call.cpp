// The words for errno.
// Called through system_call.hpp.
#include "core/system_call.hpp"

#include <cstring>

namespace tilewire {

std::string SystemCall::why() const { return std::strerror(error); }

void require_granted(const SystemCall& call, const std::string& what) {
  if (!call.ok()) fail(ErrorKind::unsupported, "{}: {}", what, call.why());
}

}  // namespace tilewire
