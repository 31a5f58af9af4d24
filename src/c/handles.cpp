// Which handles of the C interface are live.
// Called by the handles themselves, and by every function that is given one.
#include "c/handles.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace tilewire::c {
namespace {

/// What is live, and what it is.
struct Handles {
  std::shared_mutex mutex;
  std::unordered_map<const void*, HandleKind> live;
};

/// NOTE: never destroyed: a program may leave its group when its own static objects end.
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
  require(is_live(group, HandleKind::group), "{}: no group of this process: it has been left, or was never joined",
          function);
}

void require_live(const tilewire_op* op, const char* function) {
  require_pointer(op, function, "op");
  require(is_live(op, HandleKind::op),
          "{}: no operator of this process: it has been freed, its group has ended, or it was never made", function);
}

}  // namespace tilewire::c
