// Written files: an existing file keeps its kind, mode, owner and names, and is complete or absent.
#include "core/output_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "tilewire/error.hpp"

namespace tilewire {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status;
}

/// The Error's text; "none" if there is none.
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    return error.what();
  }
  return "none";
}

/// The failure that a child process has found; "" = none.
std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = body();
    const ssize_t put = ::write(ends[1], said.data(), said.size());
    ::_exit(put < 0 ? 1 : 0);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(ends[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return said;
}

void as_text(const std::string& path, const std::string& text) { write_output(path, text); }

void in_pieces(const std::string& path, const std::string& text) {
  OutputFile file(path);
  std::fstream scratch(file.scratch(), std::ios::in | std::ios::out | std::ios::binary);
  const size_t half = text.size() / 2;
  scratch.seekp(static_cast<std::streamoff>(half));
  scratch << text.substr(half);
  scratch.seekp(0);
  scratch << text.substr(0, half) << std::flush;
  file.finish();
}

/// Both ways of writing: "Text", and by offset, "Pieces".
class Output : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tilewire_output_XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directories(folder_ + "/tmp");
    ::setenv("TMPDIR", (folder_ + "/tmp").c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    EXPECT_TRUE(fs::is_empty(folder_ + "/tmp"));
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tilewire")) << entry.path();
    }
    fs::remove_all(folder_);
  }
  void write(const std::string& path, const std::string& text) const {
    GetParam() == "Text" ? as_text(path, text) : in_pieces(path, text);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
  }

  std::string folder_;
};

const std::string kLong(300'000, 'x');

TEST_P(Output, ANewFileHasTheModeOfTheUmask) {
  const mode_t before = ::umask(027);
  write(at("new"), kLong);
  ::umask(before);
  EXPECT_EQ(read(at("new")), kLong);
  EXPECT_EQ(status_of(at("new")).st_mode & 07777, 0640U);
  write(at("empty"), "");
  EXPECT_EQ(read(at("empty")), "");
  const std::string longest(255, 'n');
  write(at(longest), "a name may be as long as the system allows");
  EXPECT_TRUE(fs::exists(at(longest)));
}

TEST_P(Output, AFileKeepsModeAndOwner) {
  put("old", kLong);
  ASSERT_EQ(::chmod(at("old").c_str(), 0604), 0);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(at("old").c_str(), kNobody, kNobody), 0);
  }
  const struct stat before = status_of(at("old"));
  write(at("old"), "new");
  EXPECT_EQ(read(at("old")), "new");
  EXPECT_EQ(status_of(at("old")).st_mode, before.st_mode);
  EXPECT_EQ(status_of(at("old")).st_uid, before.st_uid);
  EXPECT_EQ(status_of(at("old")).st_gid, before.st_gid);
  EXPECT_NE(status_of(at("old")).st_ino, before.st_ino) << "it was replaced, so that a reader never sees half of it";
}

TEST_P(Output, AnotherOwnersFileStaysHis) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::permissions(folder_, fs::perms::all);
  fs::permissions(folder_ + "/tmp", fs::perms::all);
  put("roots", kLong);
  ASSERT_EQ(::chmod(at("roots").c_str(), 0666), 0);
  const std::string said = in_child([&] {
    return ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0 ? "no other user"
                                                            : message_of([&] { write(at("roots"), "new"); });
  });
  EXPECT_EQ(said, "none");
  EXPECT_EQ(read(at("roots")), "new");
  EXPECT_EQ(status_of(at("roots")).st_uid, 0U);
}

TEST_P(Output, AllNamesOfAFileHaveTheNewContent) {
  put("one", kLong);
  fs::create_hard_link(at("one"), at("two"));
  write(at("one"), "short");
  EXPECT_EQ(read(at("two")), "short");
  EXPECT_EQ(status_of(at("one")).st_ino, status_of(at("two")).st_ino);
}

TEST_P(Output, AttributesStay) {
  put("old", "old");
  if (::setxattr(at("old").c_str(), "user.note", "kept", 4, 0) != 0) GTEST_SKIP() << "no attributes here";
  write(at("old"), "new");
  EXPECT_EQ(read(at("old")), "new");
  EXPECT_EQ(::getxattr(at("old").c_str(), "user.note", nullptr, 0), 4);
}

TEST_P(Output, LinksLeadToTheirTarget) {
  fs::create_directories(at("below"));
  put("below/target", "old");
  fs::create_symlink("below/target", at("link"));
  fs::create_symlink(at("link"), at("link_of_link"));
  write(at("link_of_link"), "new");
  EXPECT_EQ(read(at("below/target")), "new");
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_TRUE(fs::is_symlink(at("link_of_link")));
  fs::create_symlink("below/missing", at("dangling"));
  write(at("dangling"), "made");
  EXPECT_EQ(read(at("below/missing")), "made");
  EXPECT_TRUE(fs::is_symlink(at("dangling")));
  fs::create_symlink("loop", at("loop"));
  EXPECT_EQ(message_of([&] { write(at("loop"), "x"); }),
            at("loop") + ": cannot write it: Too many levels of symbolic links");
}

TEST_P(Output, APipeGetsEverythingInOrder) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i) + "\n";
  std::string got;
  std::thread reader([&] { got = read(at("pipe")); });
  write(at("pipe"), text);
  reader.join();
  EXPECT_EQ(got, text);
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
}

TEST_P(Output, AReaderThatHasGoneIsAnError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  const std::string path = "/dev/fd/" + std::to_string(ends[1]);
  EXPECT_EQ(message_of([&] { write(path, kLong); }), path + ": cannot write it: Broken pipe; its new content is lost");
  ::close(ends[1]);
}

TEST_P(Output, AnOpenDescriptorIsWrittenWhereItStands) {
  const int file = ::open(at("stdout").c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_EQ(::write(file, "before ", 7), 7);
  write("/proc/self/fd/" + std::to_string(file), "new");
  ASSERT_EQ(::write(file, " after", 6), 6);
  EXPECT_EQ(read(at("stdout")), "before new after");
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  check_output("/dev/fd/" + std::to_string(ends[0]), true);
  write("/dev/fd/" + std::to_string(ends[0]), "over a socket");
  std::string got(13, '\0');
  EXPECT_EQ(::read(ends[1], got.data(), got.size()), 13);
  EXPECT_EQ(got, "over a socket");
  for (const int each : {file, ends[0], ends[1]}) ::close(each);
}

TEST_P(Output, ADeviceStaysOne) {
  if (::mknod(at("null").c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) GTEST_SKIP() << "no devices here";
  if (!std::ofstream(at("null"))) GTEST_SKIP() << "devices cannot be opened here";
  fs::create_symlink("null", at("link"));
  write(at("null"), kLong);
  write(at("link"), kLong);
  EXPECT_TRUE(S_ISCHR(status_of(at("null")).st_mode));
  EXPECT_TRUE(fs::is_symlink(at("link")));
}

TEST_P(Output, AFullDeviceIsAnError) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  check_output("/dev/full", true);
  EXPECT_EQ(message_of([&] { write("/dev/full", kLong); }),
            "/dev/full: cannot write it: No space left on device; its new content is lost");
}

TEST_P(Output, AMountedFileIsWrittenInPlace) {
  put("host", kLong);
  put("inside", "");
  if (::mount(at("host").c_str(), at("inside").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "no mounts here";
  check_output(at("inside"), true);
  const std::string said = message_of([&] { write(at("inside"), "new"); });
  EXPECT_EQ(::umount(at("inside").c_str()), 0);
  EXPECT_EQ(said, "none");
  EXPECT_EQ(read(at("host")), "new");
  EXPECT_EQ(read(at("inside")), "");
}

TEST_P(Output, AFileInAFolderThatCannotBeWritten) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::permissions(folder_ + "/tmp", fs::perms::all);
  fs::create_directories(at("closed"));
  put("closed/open", kLong);
  ASSERT_EQ(::chown(at("closed/open").c_str(), kNobody, kNobody), 0);
  fs::permissions(folder_, fs::perms::others_exec, fs::perm_options::add);
  const std::string said = in_child([&] {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return std::string("no other user");
    return message_of([&] {
      check_output(at("closed/open"), true);
      write(at("closed/open"), "new");
    });
  });
  EXPECT_EQ(said, "none");
  EXPECT_EQ(read(at("closed/open")), "new");
}

INSTANTIATE_TEST_SUITE_P(Ways, Output, ::testing::Values("Text", "Pieces"));

using OutputCheck = Output;

TEST_P(OutputCheck, ALimitOfFilesSizesLeavesWhatIsThere) {
  put("old", "old");
  fs::create_hard_link(at("old"), at("other"));
  put("single", "old");
  const std::string said = in_child([&] {
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string all;
    for (const char* name : {"old", "single", "new"}) {
      const std::string message = message_of([&] { write(at(name), kLong); });
      const bool says = message.starts_with(at(name) + ": cannot write it: File too large");
      if (!says) all += message + "\n";
    }
    return all;
  });
  EXPECT_EQ(said, "");
  EXPECT_EQ(read(at("other")), "old");
  EXPECT_EQ(read(at("single")), "old");
  EXPECT_FALSE(fs::exists(at("new")));
}

TEST_P(OutputCheck, LeavesEverythingAsItIs) {
  put("old", "old");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const int reader = ::open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  const struct stat before = status_of(at("old"));
  for (const char* name : {"old", "pipe", "new"}) {
    check_output(at(name));
    check_output(at(name), true);
  }
  EXPECT_EQ(read(at("old")), "old");
  EXPECT_EQ(status_of(at("old")).st_ino, before.st_ino);
  EXPECT_EQ(status_of(at("old")).st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_FALSE(fs::exists(at("new")));
  pollfd ended{reader, POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0) << "the pipe's reader has seen its end";
  ::close(reader);
}

TEST_P(OutputCheck, SaysWhatCannotBeWritten) {
  const auto refusal = [&](const std::string& path) { return message_of([&] { check_output(path); }); };
  const auto expect = [&](const std::string& path, const std::string& why) {
    EXPECT_EQ(refusal(path), path + ": cannot write it: " + why);
    EXPECT_NE(message_of([&] { write(path, "x"); }).find(why), std::string::npos);
  };
  put("file", "old");
  expect(folder_, "it is a directory");
  expect(at("no/x"), "No such file or directory");
  expect(at("file/x"), "Not a directory");
  expect(at(std::string(256, 'n')), "File name too long");
  expect("/proc/none", "No such file or directory");
  fs::create_symlink("b", at("a"));
  fs::create_symlink("a", at("b"));
  expect(at("a"), "Too many levels of symbolic links");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  at("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect(at("socket"), "it is a socket");
  ::close(socket);
  const int only_read = ::open(at("file").c_str(), O_RDONLY);
  expect("/dev/fd/" + std::to_string(only_read), "Bad file descriptor");
  ::close(only_read);
  EXPECT_EQ(read(at("file")), "old");
}

TEST_P(OutputCheck, SaysWhatIsForbidden) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::permissions(folder_, fs::perms::others_exec, fs::perm_options::add);
  put("roots", "old");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const std::string said = in_child([&] {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return std::string("no other user");
    std::string all;
    for (const char* name : {"roots", "pipe", "new"}) all += message_of([&] { check_output(at(name)); }) + "\n";
    return all;
  });
  for (const char* name : {"roots", "pipe", "new"}) {
    EXPECT_NE(said.find(at(name) + ": cannot write it: Permission denied\n"), std::string::npos) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, OutputCheck, ::testing::Values("Text"));

}  // namespace
}  // namespace tilewire
