// Memory that others can map: blocks, and what a peer sees of them.
#include "runtime/shared_arena.h"

#include <cstring>

#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/error.h"
#include "tests/support/expect_error.h"

namespace ringworld {
namespace {

std::shared_ptr<SharedArena> make_arena() {
  std::string why_not;
  auto arena = SharedArena::create(Bytes(1000), why_not);
  EXPECT_NE(arena, nullptr) << why_not;
  return arena;
}

TEST(SharedArena, BlocksAreAlignedApartAndBehindTheFront) {
  const auto arena = make_arena();
  EXPECT_GE(arena->front(), Bytes(1000));
  std::byte* before = arena->begin() + arena->front().value;
  for (const std::int64_t bytes : {1, 64, 1000, 300'000, 9 << 20}) {
    std::byte* block = arena->allocate(Bytes(bytes));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    EXPECT_GE(block, before);
    std::memset(block, 1, static_cast<std::size_t>(bytes));
    before = block + bytes;
  }
}

TEST(SharedArena, WhatIsReleasedIsUsedAgainWhole) {
  const auto arena = make_arena();
  constexpr Bytes size{1 << 20};
  std::byte* a = arena->allocate(size);
  std::byte* b = arena->allocate(size);
  std::byte* c = arena->allocate(size);
  std::byte* d = arena->allocate(size);
  arena->release(a, size);
  arena->release(c, size);
  arena->release(b, size);  // joins the holes on both sides
  EXPECT_EQ(arena->allocate(Bytes(3 * size.value)), a);
  arena->release(d, size);
}

TEST(SharedArena, PagesOfWhatIsReleasedGoBack) {
  const auto arena = make_arena();
  constexpr Bytes size{1 << 20};
  std::byte* block = arena->allocate(size);
  std::memset(block, 7, static_cast<std::size_t>(size.value));
  arena->release(block, size);
  ASSERT_EQ(arena->allocate(size), block);
  EXPECT_EQ(static_cast<int>(block[0]), 0);  // a page of its own again
  EXPECT_EQ(static_cast<int>(block[size.value - 1]), 0);
}

TEST(SharedArena, MoreThanThereIsIsNotHad) {
  const auto arena = make_arena();
  EXPECT_EQ(arena->allocate(arena->size()), nullptr);
  expect_error<OutOfDeviceMemory>([&] { make_arena_memory(arena)->allocate(arena->size()); },
                                  {"no ", "left"});
}

TEST(MappedArena, SeesWhatItsOwnerWrites) {
  const auto arena = make_arena();
  std::string why_not;
  const auto mapped = MappedArena::open(getpid(), arena->file(), arena->size(), why_not);
  ASSERT_NE(mapped, nullptr) << why_not;
  std::byte* block = arena->allocate(Bytes(8));
  std::memcpy(block, "present", 8);
  EXPECT_STREQ(reinterpret_cast<const char*>(mapped->begin() + (block - arena->begin())),
               "present");
}

TEST(MappedArena, SaysWhyThereIsNone) {
  std::string why_not;
  EXPECT_EQ(MappedArena::open(getpid(), 9999, Bytes(4096), why_not), nullptr);
  EXPECT_NE(why_not.find("/fd/9999"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace ringworld
