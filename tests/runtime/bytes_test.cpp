#include "runtime/bytes.h"

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace ringworld {
namespace {

TEST(Bytes, ReadsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("4096", "--x"), Bytes(4096));
  EXPECT_EQ(parse_bytes("50MB", "--x"), Bytes(50'000'000));
  EXPECT_EQ(parse_bytes("50MiB", "--x"), Bytes(50 << 20));
  EXPECT_EQ(parse_bytes("1.5 GiB", "--x"), Bytes(3ll << 29));
  EXPECT_EQ(parse_bytes("2g", "--x"), Bytes(2ll << 30));
  EXPECT_EQ(parse_bytes("8b", "--x"), Bytes(8));
}

TEST(Bytes, RefusesWhatIsNotASize) {
  for (const char* text : {"", "0", "-1GB", "lots", "5XB", "5MBit", "nan", "inf", "1e30", "0.5"}) {
    try {
      parse_bytes(text, "--device-memory");
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("--device-memory"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos);
    }
  }
}

TEST(Bytes, IsWrittenForPeople) {
  EXPECT_EQ(to_string(Bytes(512)), "512 B");
  EXPECT_EQ(to_string(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(to_string(Bytes(2ll << 30)), "2.00 GiB");
}

}  // namespace
}  // namespace ringworld
