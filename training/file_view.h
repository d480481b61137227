// The bytes of a file, read-only: large files are mapped, so that a data set may exceed the memory
// and ranks of one machine share its pages; small ones are read, so that a directory of many files
// does not use up the process's mappings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ringworld {

class FileView {
 public:
  // Throws DataError that names the path and the system's reason. A mapped file must not be
  // shortened while it is viewed.
  explicit FileView(const std::string& path);

  std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }
  // What keeps the bytes alive: for views that outlast this one.
  const std::shared_ptr<const std::byte>& owner() const { return memory_; }

 private:
  std::shared_ptr<const std::byte> memory_;
  std::size_t size_ = 0;
};

}  // namespace ringworld
