// libjpeg-turbo's headers. jpegint.h has no include guard.
#ifndef HDMLP_CODEC_LIBJPEG_H
#define HDMLP_CODEC_LIBJPEG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jpegint.h>

// The edge of a component's blocks after the inverse DCT, which depends on the library's interface.
#if JPEG_LIB_VERSION >= 70
#define DCT_SCALED_SIZE DCT_h_scaled_size
#else
#define DCT_SCALED_SIZE DCT_scaled_size
#endif

#endif
