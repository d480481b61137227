# ringworld_library(NAME [APART] SOURCES ... [PUBLIC libs...] [PRIVATE libs...]): a floor of the house,
# or a part of one, with the project's warnings and include path. A dozen files are compiled at once,
# so that large headers are read once for all of them, unless they stand APART or RINGWORLD_TOGETHER is
# off. Names in the unnamed namespaces of a floor therefore differ.
function(ringworld_library name)
  cmake_parse_arguments(ARG "APART" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} ringworld_options)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -Wshadow)  # tests see constants of each other's files
  if(RINGWORLD_TOGETHER AND NOT ARG_APART)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# For options, tables, JSON and tests, whose large headers would take longer to compile well than they
# ever run. Optimising that little, GCC sees uninitialised values in them where there are none.
function(ringworld_compile_quickly name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1> -Wno-maybe-uninitialized)
endfunction()

add_library(ringworld_options INTERFACE)
target_compile_options(ringworld_options INTERFACE
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  -Werror)
if(RINGWORLD_SANITIZE)
  target_compile_options(ringworld_options INTERFACE
    -fsanitize=${RINGWORLD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ringworld_options INTERFACE -fsanitize=${RINGWORLD_SANITIZE})
endif()
