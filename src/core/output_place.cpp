// Resolves a path to the file that it leads to.
// Called by output_file.cpp and the command.
#include "core/output_place.hpp"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tilewire {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // the kernel's limit

// Split a path below /proc/PID/fd into the PID and the descriptor; nothing for any other path.
std::optional<std::pair<std::string, int>> open_descriptor(const fs::path& path) {
  std::error_code error;
  const fs::path parent = fs::canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), error);
  if (error || parent.filename() != "fd" || !parent.string().starts_with("/proc/")) return std::nullopt;
  const std::string name = path.filename();
  int descriptor = -1;
  const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
  if (bad != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  const std::string process = parent.string().substr(6);
  return std::pair(process.substr(0, process.find('/')), descriptor);
}

// NOTE: do not follow the text of such a link: "pipe:[7]" is no path, and the file may have been removed.
void look_at_open_one(OutputPlace& place, const std::string& process, int descriptor) {
  place.opened = true;
  // NOTE: not getpid(): /proc may have the numbers of another PID namespace.
  std::error_code error;
  const bool ours = process == fs::read_symlink("/proc/self", error).string();
  if (ours) place.descriptor = descriptor;
  place.found = system_call(
      [&] { return ours ? ::fstat(descriptor, &place.status) : ::stat(place.path.c_str(), &place.status); });
  place.exists = place.found.ok();
}

// Whether the file has attributes that a user set; attributes of file systems and security modules do not count.
bool has_attributes(const std::string& path) {
  std::vector<char> names(1 << 16);
  const SystemCall listed = system_call([&] { return ::listxattr(path.c_str(), names.data(), names.size()); });
  if (!listed.ok()) return listed.error == ERANGE;
  for (int64_t at = 0; at < listed.value;) {
    const std::string_view name(names.data() + at);
    if (name.starts_with("user.") || name == "system.posix_acl_access") return true;
    at += static_cast<int64_t>(name.size()) + 1;
  }
  return false;
}

std::string key_of(const struct stat& status) {
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

}  // namespace

OutputPlace output_place(const std::string& path) {
  OutputPlace place{.asked = path, .path = path, .found = {0, 0}};
  for (int links = 0; links <= kMostLinks; ++links) {
    const SystemCall looked = system_call([&] { return ::lstat(place.path.c_str(), &place.status); });
    place.exists = looked.ok();
    if (!looked.ok()) {
      if (looked.error != ENOENT) place.found = looked;
      return place;
    }
    if (!S_ISLNK(place.status.st_mode)) return place;
    if (const auto open = open_descriptor(place.path)) {
      look_at_open_one(place, open->first, open->second);
      return place;
    }
    std::error_code error;
    const fs::path target = fs::read_symlink(place.path, error);
    if (error) {
      place.exists = false;
      place.found = {-1, error.value()};
      return place;
    }
    place.path = (fs::path(place.path).parent_path() / target).string();
  }
  place.exists = false;
  place.found = {-1, ELOOP};
  return place;
}

bool OutputPlace::replaceable() const {
  if (opened || !found.ok()) return false;
  return !exists || (regular() && status.st_nlink == 1 && !has_attributes(path));
}

std::string OutputPlace::folder() const {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

std::optional<std::string> OutputPlace::identity() const {
  if (exists) return S_ISCHR(status.st_mode) ? std::nullopt : std::optional(key_of(status));
  // Identify a new file by its folder and name, or by its path if the folder is new, too.
  struct stat parent {};
  const std::string there = folder();
  const bool known = system_call([&] { return ::stat(there.c_str(), &parent); }).ok();
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  return known ? key_of(parent) + "/" + fs::path(path).filename().string() : (error ? path : whole.string());
}

}  // namespace tilewire
