#include <cerrno>
#include <system_error>

#include <unistd.h>

#include "runtime/async_io.h"

namespace ringworld {
namespace {

// transfer(address, bytes, offset) is pread or pwrite, which may move less than asked for.
template <typename Byte, typename Transfer>
void move_all(std::span<Byte> range, std::int64_t offset, const Transfer& transfer) {
  while (!range.empty()) {
    const ssize_t moved = transfer(range.data(), range.size(), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      throw std::system_error(moved < 0 ? errno : EIO, std::generic_category());
    }
    range = range.subspan(static_cast<std::size_t>(moved));
    offset += moved;
  }
}

class ThreadIo final : public AsyncIo {
 public:
  std::string_view name() const override { return "threads"; }

  Work read(int file, std::span<std::byte> to, std::int64_t offset) override {
    return reads_.submit([=] {
      move_all(to, offset, [=](auto* p, auto n, auto at) { return ::pread(file, p, n, at); });
    });
  }

  Work write(int file, std::span<const std::byte> from, std::int64_t offset) override {
    return writes_.submit([=] {
      move_all(from, offset, [=](auto* p, auto n, auto at) { return ::pwrite(file, p, n, at); });
    });
  }

 private:
  Stream reads_;
  Stream writes_;
};

}  // namespace

std::unique_ptr<AsyncIo> make_thread_io() {
  return std::make_unique<ThreadIo>();
}

}  // namespace ringworld
