// A Huffman decoder for baseline JPEG that replaces libjpeg-turbo's and computes the same
// coefficients faster.
//
// libjpeg-turbo calls its entropy decoder through a pointer (jpegint.h), once per MCU;
// entropy_start puts ours there. It handles only the common case: one Huffman-coded sequential scan
// with valid data. Otherwise entropy_start leaves libjpeg's decoder in place, or the decoder calls
// bail, which restarts the image with libjpeg's decoder.
#ifndef HDMLP_CODEC_ENTROPY_H
#define HDMLP_CODEC_ENTROPY_H

#include "entropy_table.h"
#include "libjpeg.h"

typedef struct entropy_decoder {
	// The rest of the scan, and a piece of it without stuffing, split into parts by restart
	// markers.
	const uint8_t *src, *src_end;
	uint8_t *data;
	const uint8_t *part_end; // end of the bytes copied so far
	boolean at_marker;       // the part is complete; src is at the marker after it
	boolean restarted;       // there are restart markers
	uint32_t restarts;       // that were passed
	uint32_t left;           // MCUs

	const uint8_t *next;
	uint64_t bits; // the next bits, from the highest
	int valid;     // how many of them count
	int32_t dc[MAX_COMPS_IN_SCAN];
	uint32_t column, to_restart;

	entropy_table dc_table[NUM_HUFF_TBLS], ac_table[NUM_HUFF_TBLS];
	// Per block of an MCU:
	const entropy_table *block_dc[D_MAX_BLOCKS_IN_MCU], *block_ac[D_MAX_BLOCKS_IN_MCU];
	uint8_t block_component[D_MAX_BLOCKS_IN_MCU], block_needs_ac[D_MAX_BLOCKS_IN_MCU];
	int blocks;
	uint32_t columns, first_column, last_column;
	void (*bail)(j_decompress_ptr);
} entropy_decoder;

// entropy_start replaces cinfo's entropy decoder if it can. It is called after
// jpeg_start_decompress and jpeg_crop_scanline, with e in cinfo->client_data. bail must not return.
boolean entropy_start(j_decompress_ptr cinfo, entropy_decoder *e, void (*bail)(j_decompress_ptr));

void entropy_free(entropy_decoder *e);

#endif
