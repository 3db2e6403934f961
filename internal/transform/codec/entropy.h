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

enum { look = 10, far = 12 }; // bits looked up at once; to skip

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
//
// What is not wanted is gone past by all codes that look bits show, and the value behind the last one. skip says, for
// AC codes,
//   bits  0..7   how many bits they use; 0 where entry has nothing
//   bits  8..15  how many coefficients they are about
//   bits 16..23  how many those before the last code are about
typedef struct {
	uint64_t entry[1 << look];
	uint32_t skip[1 << far];
	int32_t limit[17];  // limit[n]: first 16-bit window above the codes of n bits
	int32_t offset[17]; // index into symbol of a code of n bits, less the code
	uint8_t symbol[256];
	uint8_t counts[17]; // of codes of n bits
	int set, is_ac;
} entropy_table;

typedef struct entropy_decoder {
	// What is left of the scan, and a piece of it without stuffing, which restart markers cut into parts.
	const uint8_t *src, *src_end;
	uint8_t *data;
	const uint8_t *part_end; // what is there so far
	boolean at_marker;       // that is all; src is at the marker behind it
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

// Takes over cinfo's entropy decoder, if it can; called after jpeg_start_decompress and jpeg_crop_scanline, with
// cinfo->client_data's decoder e. bail must not return.
boolean entropy_start(j_decompress_ptr cinfo, entropy_decoder *e, void (*bail)(j_decompress_ptr));

void entropy_free(entropy_decoder *e);

#endif
