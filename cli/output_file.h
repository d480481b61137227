// Files that a command writes at its end, found out about at its beginning.
#pragma once

#include <string>
#include <string_view>

namespace ringworld {

// Throws DataError that names option and path unless the file can be opened for writing; what is in
// it stays, and where there is none, there is none after. Nothing for an empty path and for "-".
void check_writable(std::string_view option, const std::string& path);

// To the path, or to standard output for "-"; nothing for an empty path. Throws DataError that
// names option and path when it cannot be written whole; when the disk is full, what was in the
// file is still there.
void write_file(std::string_view option, const std::string& path, const std::string& text);

}  // namespace ringworld
