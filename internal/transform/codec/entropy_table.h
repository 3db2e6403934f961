// Tables by which entropy.c decodes Huffman codes of a JPEG several at a time.
#ifndef HDMLP_CODEC_ENTROPY_TABLE_H
#define HDMLP_CODEC_ENTROPY_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

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

enum { unusable = 0x80 }; // bit 7 of an entry

// entropy_table_set builds t from h, which libjpeg has validated, unless t was built from an equal
// table.
void entropy_table_set(entropy_table *t, const JHUFF_TBL *h, int is_ac);

// extend returns the value of n bits v (T.81, F.2.2.1): those that start with 0 are negative.
static inline int32_t extend(uint32_t v, uint32_t n) {
	return n == 0 ? 0 : (int32_t)v - (v >> (n - 1) ? 0 : (int32_t)((1u << n) - 1));
}

// The meaning of a symbol: the number of the value's bits and, for AC codes, the number of zero
// coefficients before it.
static inline uint32_t size_of(uint32_t symbol, int is_ac) { return is_ac ? symbol & 15 : symbol; }

static inline uint32_t run_of(uint32_t symbol, int is_ac) {
	if (!is_ac)
		return 0;
	// No value: 16 zeros, or the end of the block; libjpeg treats all other symbols as the latter.
	return (symbol & 15) != 0 ? symbol >> 4 : symbol >> 4 == 15 ? 15 : 64;
}

#endif
