// A Huffman decoder for baseline JPEG that takes the place of libjpeg-turbo's, and gives the same coefficients
// faster.
//
// libjpeg-turbo calls its entropy decoder through a pointer (jpegint.h), once per MCU; entropy_start puts ours there.
// It knows the common case alone: one Huffman-coded sequential scan, sound data. On anything else entropy_start
// leaves libjpeg's decoder in place, or the decoder calls bail, which starts the image again with libjpeg's.
#ifndef HDMLP_CODEC_ENTROPY_H
#define HDMLP_CODEC_ENTROPY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jpegint.h>

enum { look = 10 }; // bits looked up at once

// entropy_table decodes Huffman codes with the values behind them: one, or two where both fit into look bits. Of the
// next look bits, an entry says
//   bits  0..5   how many bits it uses in all; look at most, or one code and its value
//   bit   7      set if it says nothing: a code longer than look bits, or none
//   bits  8..15  the length of the first code; its value comes behind it
//   bits 16..23  63 less the number of the value's bits
//   bits 24..31  how many coefficients to skip before the first value's: 64 at the end of the block
//   bits 32..39  how many coefficients it is about in all
//   bits 40..47  how many bits the first code and its value use
//   bits 48..63  the second value; if there is none the last coefficient it is about is the first value's
typedef struct {
	uint64_t entry[1 << look];
	int32_t limit[17];  // limit[n]: first 16-bit window above the codes of n bits
	int32_t offset[17]; // index into symbol of a code of n bits, less the code
	uint8_t symbol[256];
	uint8_t counts[17]; // of codes of n bits
	int set, is_ac;
} entropy_table;

typedef struct entropy_decoder {
	// The scan without stuffing and restart markers, and where the parts between the latter start.
	uint8_t *data;
	size_t capacity;
	uint32_t *segment;
	size_t segments, segment_capacity;
	size_t part; // the current one

	const uint8_t *next;
	uint64_t bits; // the next bits, from the highest
	int valid;     // how many of them count
	int32_t dc[MAX_COMPS_IN_SCAN];
	uint32_t column, to_restart;
	const uint8_t *part_end;

	entropy_table dc_table[NUM_HUFF_TBLS], ac_table[NUM_HUFF_TBLS];
	// Per block of an MCU:
	const entropy_table *block_dc[D_MAX_BLOCKS_IN_MCU], *block_ac[D_MAX_BLOCKS_IN_MCU];
	uint8_t block_component[D_MAX_BLOCKS_IN_MCU], block_needs_ac[D_MAX_BLOCKS_IN_MCU];
	int blocks;
	uint32_t columns, first_column, last_column;
	void (*bail)(j_decompress_ptr);
} entropy_decoder;

// Takes over cinfo's entropy decoder, if it can; called after jpeg_start_decompress and jpeg_crop_scanline, with
// cinfo->client_data's decoder e. bail must not return.
boolean entropy_start(j_decompress_ptr cinfo, entropy_decoder *e, void (*bail)(j_decompress_ptr));

void entropy_free(entropy_decoder *e);

#endif
