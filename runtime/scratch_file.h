// A file of one process in a given directory, without a name: nothing of it is left when the
// process ends, however it ends.
#pragma once

#include <string>

#include "runtime/bytes.h"

namespace ringworld {

// What offsets, lengths and addresses of direct reads and writes are multiples of: a page, which
// every block device's sector divides.
inline constexpr std::int64_t file_alignment = 4096;

class ScratchFile {
 public:
  // Direct: past the page cache, where the file system allows it, else buffered. Throws DataError
  // when the directory is missing or cannot be written to; `option` named it.
  ScratchFile(std::string directory, std::string option, bool allow_direct);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  int descriptor() const { return file_; }
  bool direct() const { return direct_; }
  const std::string& directory() const { return directory_; }

  // Makes the file `size` long, with real blocks behind it, so that no later write finds the disk
  // full. Throws DataError, with the file as it was, when there is no room.
  void grow(Bytes size);

 private:
  void try_direct();
  [[noreturn]] void fail(int error) const;

  const std::string directory_;
  const std::string option_;
  int file_ = -1;
  bool direct_ = false;
  Bytes size_;
};

}  // namespace ringworld
