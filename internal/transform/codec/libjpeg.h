// libjpeg-turbo's headers. jpegint.h has no include guard.
#ifndef HDMLP_CODEC_LIBJPEG_H
#define HDMLP_CODEC_LIBJPEG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jpegint.h>

#endif
