// The inverse DCT of a block with AVX-512, which takes the place of libjpeg-turbo's.
#ifndef HDMLP_CODEC_IDCT_H
#define HDMLP_CODEC_IDCT_H

#include "libjpeg.h"

// idct_start replaces cinfo's inverse DCT for components at full size, if libjpeg's is the accurate
// one in vector instructions: the results are the same for all coefficients, also where 16 bits
// overflow. It is called after jpeg_start_decompress. level is as form_level's.
void idct_start(j_decompress_ptr cinfo, int level);

#endif
