#include "runtime/async_io.h"

#include <cstddef>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/scratch_file.h"
#include "tests/support/temporary_directory.h"

#ifdef __linux__
#include <cstdlib>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

namespace ringworld {
namespace {

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  std::uint32_t state = seed + 1;
  for (std::byte& byte : data) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

// Buffered, so that any memory and any length will do. Threads everywhere, io_uring where there is
// some.
void for_each_io(const std::function<void(AsyncIo&, int file)>& body) {
  std::string why_not;
  std::vector<std::unique_ptr<AsyncIo>> all;
  all.push_back(make_thread_io());
  if (auto uring = make_uring_io(why_not); uring != nullptr) {
    all.push_back(std::move(uring));
  }
  const TemporaryDirectory directory;
  for (const auto& io : all) {
    SCOPED_TRACE(std::string(io->name()));
    ScratchFile file(directory.path(), "--somewhere", false);
    file.grow(Bytes(1 << 20));
    body(*io, file.descriptor());
  }
}

TEST(AsyncIo, ManyRangesAtOnce) {
  for_each_io([](AsyncIo& io, int file) {
    constexpr std::size_t ranges = 300;  // more than a ring has entries
    constexpr std::size_t bytes = 3001;
    std::vector<std::vector<std::byte>> written, read(ranges, std::vector<std::byte>(bytes));
    std::vector<Work> works;
    for (std::size_t i = 0; i < ranges; ++i) {
      written.push_back(pattern(bytes, static_cast<unsigned>(i)));
    }
    for (std::size_t i = 0; i < ranges; ++i) {
      works.push_back(io.write(file, written[i], static_cast<std::int64_t>(i * bytes)));
    }
    for (std::size_t i = ranges; i-- > 0;) {  // not in the order in which they began
      works[i].wait();
      works[i].wait();
      EXPECT_TRUE(works[i].done());
    }
    works.clear();
    for (std::size_t i = 0; i < ranges; ++i) {
      works.push_back(io.read(file, read[i], static_cast<std::int64_t>(i * bytes)));
    }
    for (Work& work : works) {
      work.wait();
    }
    EXPECT_EQ(read, written);
  });
}

TEST(AsyncIo, WhatIsAskedForUntilItIsDoneGetsDone) {
  for_each_io([](AsyncIo& io, int file) {
    const auto data = pattern(70'000, 1);
    const Work work = io.write(file, data, 5);
    while (!work.done()) {
      std::this_thread::yield();
    }
  });
}

TEST(AsyncIo, AFileThatEndsTooEarlyIsAnError) {
  for_each_io([](AsyncIo& io, int file) {
    std::vector<std::byte> data(100);
    Work work = io.read(file, data, (1 << 20) - 50);
    EXPECT_THROW(work.wait(), std::system_error);
  });
}

TEST(AsyncIo, SaysWhatTheSystemSaid) {
  for_each_io([](AsyncIo& io, int) {
    std::vector<std::byte> data(100);
    Work work = io.write(-1, data, 0);
    try {
      work.wait();
      ADD_FAILURE() << "no error";
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code().value(), EBADF);
    }
  });
}

TEST(AsyncIo, ThreadsMayEndBeforeWhatTheyBegan) {
  for_each_io([](AsyncIo& io, int file) {
    const auto written = pattern(500'000, 3);
    std::vector<std::byte> read(written.size());
    Work work;
    std::thread([&] { work = io.write(file, written, 0); }).join();
    work.wait();
    std::thread([&] { work = io.read(file, read, 0); }).join();
    work.wait();
    EXPECT_EQ(read, written);
  });
}

#ifdef __linux__
// As the default profile of container runtimes does.
[[noreturn]] void forbid_io_uring_and_try() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // the call's number
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = 4, .filter = rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::_Exit(2);
  }
  std::string why_not;
  const bool refused = make_uring_io(why_not) == nullptr;
  std::_Exit(refused && why_not == "Operation not permitted" ? 0 : 1);
}

TEST(AsyncIoDeathTest, WhereIoUringIsForbiddenThatIsSaid) {
  EXPECT_EXIT(forbid_io_uring_and_try(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace ringworld
