// The thread's last error, and the names of statuses.
// Called by the other files of this folder and through tilewire/c.h.
#include "c/errors.hpp"

#include <array>

#include "core/caught.hpp"
#include "core/json_text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::c {
namespace {

/// Indexed by status. The first entry is TILEWIRE_OK, which is no error.
constexpr std::array kKinds{ErrorKind::internal,     ErrorKind::invalid_input, ErrorKind::unsupported,
                            ErrorKind::refused_plan, ErrorKind::wrong_result,  ErrorKind::rank_lost,
                            ErrorKind::timeout,      ErrorKind::internal};
constexpr std::array kNames{"ok",           "invalid_input", "unsupported", "refused_plan",
                            "wrong_result", "rank_lost",     "timeout",     "internal"};

bool is_error(tilewire_status status) { return status > TILEWIRE_OK && status <= TILEWIRE_INTERNAL; }

void remember(tilewire_status status, const char* text) noexcept {
  last_error().status = status;
  try {
    // NOTE: a text may contain names in any bytes; other languages accept only UTF-8.
    last_error().text = valid_utf8(text);
  } catch (...) {
    last_error().text.clear();
  }
}

}  // namespace

tilewire_status status_of(ErrorKind kind) {
  for (tilewire_status status = TILEWIRE_INVALID_INPUT; status < TILEWIRE_INTERNAL; ++status) {
    if (kKinds[status] == kind) return status;
  }
  return TILEWIRE_INTERNAL;
}

ErrorKind kind_of(tilewire_status status) {
  require(is_error(status), "status {} is no kind of error: want {} to {}", status,
          static_cast<int>(TILEWIRE_INVALID_INPUT), static_cast<int>(TILEWIRE_INTERNAL));
  return kKinds[status];
}

LastError& last_error() noexcept {
  thread_local LastError last;
  return last;
}

tilewire_status record_exception() noexcept {
  try {
    const Error error = caught_error();
    remember(status_of(error.kind()), error.what());
  } catch (...) {
    // There is no memory for the text either.
    remember(TILEWIRE_UNSUPPORTED, "no memory");
  }
  return last_error().status;
}

void require_pointer(const void* pointer, const char* function, const char* name) {
  require(pointer != nullptr, "{}: {} is a null pointer", function, name);
}

}  // namespace tilewire::c

extern "C" {

const char* tilewire_last_error() { return tilewire::c::last_error().text.c_str(); }

tilewire_status tilewire_last_error_status() { return tilewire::c::last_error().status; }

const char* tilewire_status_name(tilewire_status status) {
  const bool known = status == TILEWIRE_OK || tilewire::c::is_error(status);
  return known ? tilewire::c::kNames[status] : "unknown";
}

#define TILEWIRE_TEXT(number) #number
#define TILEWIRE_DOTTED(major, minor, patch) TILEWIRE_TEXT(major) "." TILEWIRE_TEXT(minor) "." TILEWIRE_TEXT(patch)

const char* tilewire_version() {
  return TILEWIRE_DOTTED(TILEWIRE_VERSION_MAJOR, TILEWIRE_VERSION_MINOR, TILEWIRE_VERSION_PATCH);
}
}
