// Writes files completely or not at all, and keeps the old file if writing fails.
// Called by the command and the tuner.
#include "core/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "core/failing_writes.hpp"
#include "core/text.hpp"

namespace tilewire {
namespace {

// Writes one piece of a file's content; a Content calls it for all pieces in order.
using Put = std::function<SystemCall(std::string_view)>;
using Content = std::function<SystemCall(const Put&)>;

constexpr const char* kLost = "its new content is lost";

[[noreturn]] void cannot_write(const std::string& path, const std::string& why) {
  fail(ErrorKind::invalid_input, "{}: cannot write it: {}", path, why);
}

void require_written(const OutputPlace& place, const SystemCall& call, const char* lost) {
  if (!call.ok()) cannot_write(place.asked, fmt::format("{}; {}", call.why(), lost));
}

// Check what needs no opened file.
void require_usable(const OutputPlace& place) {
  if (!place.found.ok()) cannot_write(place.asked, place.found.why());
  if (!place.exists) return;
  if (S_ISDIR(place.status.st_mode)) cannot_write(place.asked, "it is a directory");
  if (S_ISSOCK(place.status.st_mode) && !place.descriptor) cannot_write(place.asked, "it is a socket");
}

// Test whether the existing file can be written.
SystemCall try_to_open(const OutputPlace& place) {
  if (place.descriptor) {
    const SystemCall flags = system_call([&] { return ::fcntl(*place.descriptor, F_GETFL); });
    if (flags.ok() && (flags.value & O_ACCMODE) == O_RDONLY) return {-1, EBADF};
    return flags;
  }
  // NOTE: do not open a pipe: its reader would see the end of the file.
  if (S_ISFIFO(place.status.st_mode))
    return system_call([&] { return ::faccessat(AT_FDCWD, place.path.c_str(), W_OK, AT_EACCESS); });
  constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  return new_descriptor([&] { return ::open(place.path.c_str(), kFlags); }).call;
}

std::string temporary_folder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : std::filesystem::absolute(folder, error).string();
}

void require_scratch(const OutputPlace& place, const ScratchFile& scratch, const std::string& folder) {
  if (!scratch.made().ok())
    cannot_write(place.asked, fmt::format("no temporary file in {} (TMPDIR): {}", folder, scratch.made().why()));
}

// NOTE: a new file gets 0666 less the umask. A file that replaces another gets the other's mode later.
ScratchFile scratch_beside(const OutputPlace& place) { return ScratchFile(place.folder(), place.exists ? 0600 : 0666); }

// Write into the existing file; open it unless it is one of this process's descriptors.
void write_into(const OutputPlace& place, int64_t bytes, const Content& content) {
  Descriptor own;
  if (!place.descriptor) {
    NewDescriptor opened = new_descriptor([&] { return ::open(place.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); });
    require_written(place, opened.call, kLost);
    own = std::move(opened.descriptor);
  }
  const int to = place.descriptor ? *place.descriptor : own.get();
  const bool in_place = place.regular() && !place.descriptor;
  if (in_place) {
    // NOTE: reserve room first, so that a full disk leaves the old content. Some file systems cannot reserve.
    const SystemCall room = system_call([&] { return bytes > 0 ? ::fallocate(to, 0, 0, bytes) : 0; });
    const bool none = room.error == ENOSPC || room.error == EDQUOT || room.error == EFBIG;
    // Cut the file to its old length, because a failed reservation may have made it longer.
    if (none) static_cast<void>(system_call([&] { return ::ftruncate(to, place.status.st_size); }));
    require_written(place, none ? room : SystemCall{0, 0}, kLost);
  }
  SystemCall written = content([&](std::string_view piece) { return write_all(to, piece); });
  if (in_place) {
    const SystemCall cut = system_call([&] { return ::ftruncate(to, written.ok() ? bytes : 0); });
    if (written.ok()) written = cut;
  }
  if (written.ok() && own.valid()) written = system_call_once([&] { return ::close(own.release()); });
  require_written(place, written, in_place ? "its old and its new content are lost" : kLost);
}

// Rename the scratch file over the old file. False if the system refuses and the old file can be written into.
bool renamed(ScratchFile& scratch, const OutputPlace& place) {
  const SystemCall call = scratch.rename_to(place);
  if (!place.exists) require_written(place, call, kLost);
  return call.ok();
}

SystemCall put_scratch(int scratch, const Put& put) {
  constexpr size_t kPiece = 1 << 20;
  std::vector<char> piece(kPiece);
  for (int64_t at = 0;;) {
    const SystemCall got = system_call([&] { return ::pread(scratch, piece.data(), piece.size(), at); });
    if (!got.ok() || got.value == 0) return got;
    const SystemCall put_there = put(std::string_view(piece.data(), static_cast<size_t>(got.value)));
    if (!put_there.ok()) return put_there;
    at += got.value;
  }
}

}  // namespace

ScratchFile::ScratchFile(const std::string& folder, unsigned mode) {
  constexpr int kTries = 100;
  static std::atomic<uint64_t> count{0};
  for (int i = 0; i < kTries; ++i) {
    const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    path_ = fmt::format("{}/.tilewire.{}.{:x}.{}", folder, ::getpid(), now, count++);
    NewDescriptor made =
        new_descriptor([&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode); });
    made_ = made.call;
    descriptor_ = std::move(made.descriptor);
    if (made_.ok()) return;
    path_.clear();
    if (made_.error != EEXIST) return;
  }
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : descriptor_(std::move(other.descriptor_)), made_(other.made_), path_(std::exchange(other.path_, {})) {}

ScratchFile::~ScratchFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

SystemCall ScratchFile::settle() const {
  NewDescriptor twin = new_descriptor([&] { return ::fcntl(descriptor(), F_DUPFD_CLOEXEC, kAboveStreams); });
  if (!twin.call.ok()) return {0, 0};
  return system_call_once([&] { return ::close(twin.descriptor.release()); });
}

SystemCall ScratchFile::rename_to(const OutputPlace& place) {
  if (place.exists) {
    struct stat mine {};
    SystemCall kept = system_call([&] { return ::fstat(descriptor(), &mine); });
    const struct stat& its = place.status;
    if (kept.ok() && (mine.st_uid != its.st_uid || mine.st_gid != its.st_gid))
      kept = system_call([&] { return ::fchown(descriptor(), its.st_uid, its.st_gid); });
    if (kept.ok()) kept = system_call([&] { return ::fchmod(descriptor(), its.st_mode & 07777); });
    if (!kept.ok()) return kept;
  }
  const SystemCall renamed = system_call([&] { return ::rename(path_.c_str(), place.path.c_str()); });
  if (renamed.ok()) path_.clear();
  return renamed;
}

void check_output(const std::string& path, bool in_pieces) {
  const OutputPlace place = output_place(path);
  require_usable(place);
  if (place.exists) {
    if (const SystemCall opened = try_to_open(place); !opened.ok()) cannot_write(path, opened.why());
  }
  if (place.replaceable()) {
    const ScratchFile beside = scratch_beside(place);
    if (beside.made().ok()) return;
    if (!place.exists) cannot_write(path, beside.made().why());
  }
  if (!in_pieces) return;
  const std::string folder = temporary_folder();
  require_scratch(place, ScratchFile(folder), folder);
}

void write_output(const std::string& path, const std::string& text) {
  const FailingWrites guard;
  const OutputPlace place = output_place(path);
  require_usable(place);
  if (place.replaceable()) {
    ScratchFile beside = scratch_beside(place);
    if (!place.exists) require_written(place, beside.made(), kLost);
    if (beside.made().ok()) {
      require_written(place, write_all(beside.descriptor(), text), kLost);
      require_written(place, beside.settle(), kLost);
      if (renamed(beside, place)) return;
    }
  }
  write_into(place, static_cast<int64_t>(text.size()), [&](const Put& put) { return put(text); });
}

OutputFile::OutputFile(const std::string& path) : place_(output_place(path)) {
  require_usable(place_);
  if (place_.replaceable()) {
    scratch_.emplace(scratch_beside(place_));
    beside_ = scratch_->made().ok();
    if (beside_) return;
    if (!place_.exists) require_written(place_, scratch_->made(), kLost);
  }
  const std::string folder = temporary_folder();
  scratch_.emplace(folder);
  require_scratch(place_, *scratch_, folder);
}

std::string OutputFile::scratch() const {
  std::error_code error;
  const std::string whole = std::filesystem::absolute(scratch_->path(), error).string();
  struct stat status {};
  return !error && system_call([&] { return ::stat(whole.c_str(), &status); }).ok() ? whole : scratch_->path();
}

void OutputFile::finish() {
  const FailingWrites guard;
  require_written(place_, scratch_->settle(), kLost);
  if (beside_ && renamed(*scratch_, place_)) return;
  struct stat status {};
  require_written(place_, system_call([&] { return ::fstat(scratch_->descriptor(), &status); }), kLost);
  write_into(place_, status.st_size, [&](const Put& put) { return put_scratch(scratch_->descriptor(), put); });
}

}  // namespace tilewire
