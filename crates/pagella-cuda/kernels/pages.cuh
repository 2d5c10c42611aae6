// Arguments of `pg_copy_pages`. Mirrored field by field by the host.
#pragma once
#include <cstdint>

// Keys, values or their scales of one layer: `[page][kv head][256 tokens][row_bytes]`.
struct PagePlane {
    uint8_t* base;  // on a multiple of 16 bytes
    uint32_t row_bytes;
    uint32_t kv_heads;
};

struct PageMove {
    uint32_t from, to;
};

struct CopyPagesArgs {
    const PagePlane* planes;  // of all layers, in device memory
    const PageMove* moves;    // in device memory
    uint32_t tokens;          // copied of every page, at most 256
    uint32_t pad;
};
