// The list of live handles of the C interface.
// Called by the handles, and by every function that takes one.
#include "c/handles.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace tilewire::c {
namespace {

/// All live handles, with their kinds.
struct Handles {
  std::shared_mutex mutex;
  std::unordered_map<const void*, HandleKind> live;
};

/// NOTE: never destroyed, because a program may leave its group while its own static objects are destroyed.
Handles& handles() {
  static Handles& all = *new Handles;
  return all;
}

bool is_live(const void* handle, HandleKind kind) {
  const std::shared_lock lock(handles().mutex);
  const auto found = handles().live.find(handle);
  return found != handles().live.end() && found->second == kind;
}

}  // namespace

Listed::Listed(const void* handle, HandleKind kind) : handle_(handle) {
  const std::unique_lock lock(handles().mutex);
  handles().live.emplace(handle, kind);
}

Listed::~Listed() {
  const std::unique_lock lock(handles().mutex);
  handles().live.erase(handle_);
}

void require_live(const tilewire_group* group, const char* function) {
  require_pointer(group, function, "group");
  require(is_live(group, HandleKind::group), "{}: not a live group handle: it has been left, or was never joined",
          function);
}

void require_live(const tilewire_op* op, const char* function) {
  require_pointer(op, function, "op");
  require(is_live(op, HandleKind::op),
          "{}: not a live operator handle: it has been freed, its group has ended, or it was never made", function);
}

}  // namespace tilewire::c
