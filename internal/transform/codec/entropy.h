// A Huffman decoder for baseline JPEG that replaces libjpeg-turbo's and computes the same
// coefficients faster.
//
// libjpeg-turbo calls its entropy decoder through a pointer (jpegint.h), once per MCU;
// entropy_start puts ours there. It handles only the common case: one Huffman-coded sequential scan
// with valid data. Otherwise entropy_start leaves libjpeg's decoder in place, or the decoder calls
// bail, which restarts the image with libjpeg's decoder.
#ifndef HDMLP_CODEC_ENTROPY_H
#define HDMLP_CODEC_ENTROPY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jpegint.h>

enum { look = 10, far = 12 }; // bits looked up at once; to skip

// entropy_table decodes Huffman codes with the values that follow them: one, or two if both fit
// into look bits. For the next look bits, an entry holds
//   bits  0..5   how many bits it uses in all: at most look, or one code and its value
//   bit   7      set if the entry is unusable: a code longer than look bits, or none
//   bits  8..15  the length of the first code; its value follows
//   bits 16..23  63 minus the number of the value's bits
//   bits 24..31  how many coefficients to skip before the first value's: 64 at the end of the block
//   bits 32..39  how many coefficients it covers in all
//   bits 40..47  how many bits the first code and its value use
//   bits 48..63  the second value; without one, the first value belongs to the last coefficient
//
// Unwanted coefficients are skipped by all complete codes in the next far bits, and the value of
// the last one. skip holds, for AC codes,
//   bits  0..7   how many bits they use; 0 if the entry is unusable
//   bits  8..15  how many coefficients they cover
//   bits 16..23  how many coefficients the codes before the last cover
typedef struct {
	uint64_t entry[1 << look];
	uint32_t skip[1 << far];
	int32_t limit[17];  // limit[n]: first 16-bit window above the codes of n bits
	int32_t offset[17]; // index into symbol of a code of n bits, minus the code
	uint8_t symbol[256];
	uint8_t counts[17]; // of codes of n bits
	int set, is_ac;
} entropy_table;

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
