// .npy files: files by NumPy are read, written files have NumPy's layout, bad files are refused.
#include "cli/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "tilewire/error.hpp"

namespace tilewire::cli {
namespace {

class Npy : public ::testing::Test {
 protected:
  void SetUp() override { path_ = ::testing::TempDir() + "/npy_test" + std::to_string(::getpid()) + ".npy"; }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] std::string read() const {
    std::stringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  /// The file that numpy.save writes for this dictionary.
  [[nodiscard]] static std::string numpy(const std::string& dictionary, const std::string& data) {
    std::string header = dictionary + std::string(117 - dictionary.size(), ' ') + "\n";
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + data;
  }
  [[nodiscard]] std::string message(DType wanted = DType::fp32) const {
    try {
      static_cast<void>(read_npy_header(path_, wanted));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      return error.what();
    }
    return "accepted";
  }

  std::string path_;
};

TEST_F(Npy, ReadsABlockOfWhatNumpyWrites) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  write(numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
              std::string(reinterpret_cast<const char*>(data.data()), 24)));
  const NpyHeader header = read_npy_header(path_, DType::bf16);
  EXPECT_EQ(header, (NpyHeader{DType::fp32, 2, 3, 128, false}));
  std::vector<float> block(4, -1);
  read_npy_block(path_, header, 0, 1, Tensor{block.data(), DType::fp32, 2, 2, 2});
  EXPECT_EQ(block, (std::vector<float>{2, 3, 5, 6}));
}

TEST_F(Npy, WritesWhatNumpyWrites) {
  const std::vector<uint16_t> data{1, 2, 3, 4, 5, 6};
  const NpyHeader header = create_npy(path_, {.dtype = DType::fp16, .rows = 2, .cols = 3});
  auto* values = const_cast<uint16_t*>(data.data());
  write_npy_block(path_, header, 0, 0, Tensor{values, DType::fp16, 2, 2, 3});
  write_npy_block(path_, header, 0, 2, Tensor{values + 2, DType::fp16, 2, 1, 3});
  EXPECT_EQ(read(), numpy("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }",
                          std::string(reinterpret_cast<const char*>(data.data()), 12)));
}

TEST_F(Npy, EveryTypeGoesThereAndBack) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::int32}) {
    for (const bool uint16 : {false, true}) {
      const NpyHeader header = create_npy(path_, {.dtype = dtype, .rows = 3, .cols = 5, .uint16 = uint16});
      const NpyHeader back = read_npy_header(path_, dtype);
      EXPECT_EQ(back.dtype, dtype);
      EXPECT_EQ(back.rows * 10 + back.cols, 35);
      EXPECT_EQ(back.data_offset, header.data_offset);
      EXPECT_EQ(header.data_offset % 64, 0);
    }
  }
}

TEST_F(Npy, BrainFloatComesUnderThreeNames) {
  const std::string data(8, '\0');
  const auto dictionary = [](const std::string& descr) {
    return "{'descr': " + descr + ", 'fortran_order': False, 'shape': (4,), }";
  };
  for (const char* descr : {"'<V2'", "'|V2'", "'bfloat16'", "'<u2'"}) {
    write(numpy(dictionary(descr), data));
    const NpyHeader header = read_npy_header(path_, DType::bf16);
    EXPECT_EQ(header.dtype, DType::bf16) << descr;
    EXPECT_EQ(header.rows, 1) << "a vector is one row";
    EXPECT_TRUE(header.vector);
    EXPECT_EQ(header.cols, 4);
  }
  EXPECT_NE(message(DType::fp16).find("only with --dtype bf16"), std::string::npos);
}

TEST_F(Npy, HeadersAreReadAsNumpyReadsThem) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  const std::string bytes(reinterpret_cast<const char*>(data.data()), 24);
  const auto expect = [&](const std::string& dictionary, int64_t rows, int64_t cols) {
    write(numpy(dictionary, bytes));
    ASSERT_EQ(message(), "accepted") << dictionary;
    const NpyHeader header = read_npy_header(path_, DType::fp32);
    EXPECT_EQ(header.dtype, DType::fp32) << dictionary;
    EXPECT_EQ(header.rows, rows) << dictionary;
    EXPECT_EQ(header.cols, cols) << dictionary;
    std::vector<float> block(static_cast<size_t>(rows * cols));
    read_npy_block(path_, header, 0, 0, make_tensor(block.data(), DType::fp32, rows, cols));
    EXPECT_EQ(block, data) << dictionary;
  };
  expect(R"({"descr": "<f4", "fortran_order": False, "shape": (2, 3)})", 2, 3);
  expect("{'shape':(2,3),'descr':'=f4','fortran_order':False}", 2, 3);
  expect("  { 'fortran_order' : False ,\n 'descr' : 'f4' , 'shape' : ( 2 , 3 , ) , }  ", 2, 3);
  expect("{'descr': '|f4', 'fortran_order': False, 'shape': (2L, 3L), }", 2, 3);
  expect("{u'descr': 'float32', 'fortran_order': False, 'shape': (6L,)}", 1, 6);
  expect("{'descr': '<f4', 'fortran_order': True, 'shape': (6,), }", 1, 6);
  expect("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6), }", 1, 6);
  expect("{'descr': '<f4', 'fortran_order': True, 'shape': (6, 1), }", 6, 1);
  const auto type = [&](const std::string& descr, DType wanted) {
    write(numpy("{'descr': \"" + descr + "\", 'fortran_order': False, 'shape': (2, 3), }", bytes));
    ASSERT_EQ(message(wanted), "accepted") << descr;
    EXPECT_EQ(read_npy_header(path_, wanted).dtype, wanted) << descr;
  };
  for (const char* descr : {"=f2", "f2", "float16"}) type(descr, DType::fp16);
  for (const char* descr : {"=i4", "i4"}) type(descr, DType::int32);
  for (const char* descr : {"=u2", "u2", "|V2", "V2", "=bfloat16"}) type(descr, DType::bf16);
}

TEST_F(Npy, LengthsNeedNoPadding) {
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)}";
  for (const char version : {'\1', '\2', '\3'}) {
    std::string head("\x93NUMPY", 6);
    head += {version, 0, static_cast<char>(text.size()), 0};
    if (version > 1) head += std::string(2, '\0');
    write(head + text + std::string(4, '\0'));
    EXPECT_EQ(message(), "accepted") << int{version};
    EXPECT_EQ(read_npy_header(path_, DType::fp32).data_offset, std::ssize(head + text));
  }
}

TEST_F(Npy, BadFilesAreRefused) {
  const auto expect = [&](const std::string& text, const char* says) {
    write(text);
    EXPECT_NE(message().find(says), std::string::npos) << message();
  };
  const std::string good = numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", std::string(24, '\0'));
  write(good);
  EXPECT_EQ(message(), "accepted");
  expect("", "too short");
  expect(good.substr(0, 11), "too short");
  expect(good.substr(0, 60), "truncated in its .npy header");
  expect(good.substr(0, good.size() - 1), "truncated: 2 x 3 fp32 need 24 bytes, it holds 23");
  expect("PK" + good, "not a .npy file");
  std::string version = good;
  version[6] = 9;
  expect(version, "version 9");
  const auto dictionary = [&](const std::string& text, const char* says) { expect(numpy(text, ""), says); };
  dictionary("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", "float64");
  dictionary("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }",
             "dtype '>f4' is big endian: save .astype('<f4')");
  dictionary("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 3), }", "a structured dtype");
  dictionary("{'descr': '', 'fortran_order': False, 'shape': (2, 3), }", "dtype ''");
  dictionary("{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }", "want True or False as fortran_order; found 0");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3], }",
             "want a shape in parentheses; found [2, 3]");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2,, 3), }", "want whole numbers");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}", "key 'more'");
  dictionary("{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}", "want ',' or '}' after a value");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} + {}", "want nothing after the dictionary");
  dictionary("{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}", "malformed .npy header");
  dictionary("", "want a dictionary");
  dictionary("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", "Fortran order");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }", "want a matrix");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "shape () is a single number: want a matrix");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3), }", "shape");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000000000000, 8), }", "overflows");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 9223372036854775807), }", "overflows");
  dictionary("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", "does not end");
  dictionary("{'descr': '<f4', 'shape': (2, 3), }", "no 'fortran_order'");
  std::filesystem::remove(path_);
  EXPECT_NE(message().find("No such file"), std::string::npos) << message();
}

}  // namespace
}  // namespace tilewire::cli
