// Reads and writes of a file that run beside computation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/stream.h"

namespace ringworld {

// May be used from any thread.
class AsyncIo {
 public:
  virtual ~AsyncIo() = default;
  virtual std::string_view name() const = 0;

  // The whole range of the open file `file` from `offset`, in bytes. The memory stays until the
  // work is over; wait throws std::system_error when the system refused, or the file ended before
  // the range did. Reads and writes of one range at once have no order.
  [[nodiscard]] virtual Work read(int file, std::span<std::byte> to, std::int64_t offset) = 0;
  [[nodiscard]] virtual Work write(int file, std::span<const std::byte> from,
                                   std::int64_t offset) = 0;
};

// io_uring (Linux): requests are queued with the kernel, no thread waits for them. Returns nullptr
// where the system has none or forbids it, as containers often do; `why_not` then says why.
std::unique_ptr<AsyncIo> make_uring_io(std::string& why_not);

// pread and pwrite on a thread for each direction.
std::unique_ptr<AsyncIo> make_thread_io();

}  // namespace ringworld
