// The compact form of a JPEG's coefficients: what Huffman decoding gives, packed so that no bit has
// to be read to find the next one. form.c puts a decoder of it into libjpeg-turbo in place of the
// Huffman decoder; form_pack.c makes it; form_scan.c makes the scan of it again.
//
// A body is, with all numbers little-endian:
//   1 byte            n, the number of classes, at most 255
//   3 bytes * n       the classes
//   4 bytes * rows    where each row of MCUs begins, from the end of this table on
//   the blocks        in the order of one scan with all components
//
// A block is:
//   1 byte            its class; from n on, the class itself follows in 3 bytes
//   the mask          4 bits * the class's mask length: bit k is set if coefficient k, in zigzag
//                     order, is not 0; bit 0 is that of the difference of the DC coefficient to
//                     the component's last one in the row (0 before the first)
//   the fields        for each bit of the mask that is set, lowest first, one of the width that the
//                     class gives its group: bit 0 is the sign, the others the magnitude less 1
//   zeros             up to a byte
//
// The groups are the DC coefficient, and zigzag 1 to 9, 10 to 27, 28 to 63. A class has bits
//   0..4              the mask's length in units of 4 bits, at most 16
//   5..8, 9..12, 13..16, 17..20
//                     the width of a field of each group: 0 to 14, and 15 is 16 bits
#ifndef HDMLP_CODEC_FORM_H
#define HDMLP_CODEC_FORM_H

#include "libjpeg.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
	form_classes = 255,   // at most
	form_class_bytes = 3, // of a class in a body
	form_groups = 4,
	// The most bytes that an MCU has, and some that are read beyond it: so many are readable where
	// one is decoded.
	form_slack = D_MAX_BLOCKS_IN_MCU * (1 + form_class_bytes + 8 + 128) + 64,
};

// The coefficients of each group, as bits of a mask.
#define FORM_GROUP_1 0x3feull
#define FORM_GROUP_2 0xffffc00ull
#define FORM_GROUP_3 (~0ull << 28)

typedef struct {
	uint8_t mask_bits;
	uint8_t width[form_groups];
	uint8_t wide; // the width of a group of AC coefficients is more than form_narrow
} form_class;

// A field of so many bits lies in two bytes, wherever it begins.
enum { form_narrow = 9, form_explicit = 255 }; // mask_bits if the class follows its number

// The instructions that a decoder uses.
enum { form_portable = 1, form_bmi2, form_avx512 };

// form_level returns the most of them that the processor has, and at most, if it is not 0, level.
int form_level(int level);

#if defined(__x86_64__)
#define FORM_BMI2 __attribute__((target("bmi,bmi2,lzcnt,popcnt")))
#define FORM_AVX512 \
	__attribute__((target("bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw," \
		"avx512cd,avx512vl,avx512vbmi,avx512vbmi2")))
#endif

typedef struct form_decoder {
	const uint8_t *rows, *blocks;
	size_t size; // of the blocks
	// A copy of the last bytes, with zeros after them, from which what is near the end is decoded.
	uint8_t tail[2 * form_slack];
	size_t tail_at; // where its first byte is in the blocks

	const uint8_t *next, *end; // end: of what may be decoded at next
	uint32_t row, column;      // of the MCU at next
	uint32_t asked_row, asked_column;
	uint32_t dc[MAX_COMPS_IN_SCAN]; // modulo 2^16

	form_class class[256];
	uint8_t block_component[D_MAX_BLOCKS_IN_MCU], block_needs_ac[D_MAX_BLOCKS_IN_MCU];
	int block_count;
	uint32_t columns, row_count, first_column, last_column;
	void (*bail)(j_decompress_ptr);
	boolean (*next_mcu)(struct form_decoder *, JBLOCKROW *, uint64_t *);
	int level;
} form_decoder;

// form_natural_order has the position in a block, row by row, of each coefficient in zigzag order.
extern const uint8_t form_natural_order[64];

#if defined(__x86_64__)
// form_half returns the first or second 32 coefficients of a block in zigzag order.
static inline FORM_AVX512 __m512i form_half(const int16_t *block, int second) {
	__m512i a = _mm512_loadu_si512(block), b = _mm512_loadu_si512(block + 32);
	__m256i order = _mm256_loadu_si256((const __m256i *)(form_natural_order + 32 * second));
	return _mm512_permutex2var_epi16(a, _mm512_cvtepu8_epi16(order), b);
}
#endif

// form_start replaces cinfo's entropy decoder by one that reads body, which must stay valid while
// cinfo is used. It is called as entropy_start is, with f where form_of finds it. It reports
// whether body may be one of this image; what is wrong in it further on calls bail. level, if not
// 0, limits the instructions that are used.
boolean form_start(j_decompress_ptr cinfo, form_decoder *f, const uint8_t *body, size_t size,
	int level, void (*bail)(j_decompress_ptr));

// form_of returns the decoder of cinfo. jpeg.c has it.
form_decoder *form_of(j_decompress_ptr cinfo);

// form_mcu decodes the next MCU of the scan into blocks, which are 0, and the blocks' masks. It is
// called after form_start, for each MCU in turn. It reports whether the body is valid.
boolean form_mcu(form_decoder *f, int16_t (*blocks)[64], uint64_t *masks);

// A form_coefficients are an image's blocks in the order of a body, each row by row, with its DC
// coefficient as it is.
typedef struct {
	int16_t (*blocks)[64];
	uint32_t rows, columns; // of MCUs
	int block_count;        // of an MCU
	uint8_t block_component[D_MAX_BLOCKS_IN_MCU];
} form_coefficients;

// What form_pack needs for a block, and for all blocks of a class.
typedef struct {
	uint64_t mask;
	uint32_t class; // its place in classes
	int32_t dc;     // the difference
} form_summary;

typedef struct {
	uint32_t bits;                // the class
	uint32_t number;              // in the body; form_classes: it has none
	uint32_t uses;                // blocks
	uint32_t fields[form_groups]; // of all blocks
} form_class_uses;

// form_packer makes bodies, and keeps its memory. Zero is ready for use.
typedef struct {
	uint8_t *body;
	size_t size, capacity;
	form_summary *summaries;
	size_t summary_capacity;
	form_class_uses *classes, **order; // order: those used most first
	uint32_t *slots;                   // a hash table of places in classes, plus 1
	uint32_t class_count, class_capacity, slot_count;
} form_packer;

// form_pack makes a body of at most limit bytes. It returns 0, or form_no_memory or form_too_large.
int form_pack(form_packer *p, const form_coefficients *c, size_t limit, int level);
void form_pack_free(form_packer *p);

enum { form_no_memory = 1, form_too_large };

// form_scan makes the scan of cinfo's image again: the bytes between its header and the marker
// after it, of which there are size. It is called after form_start. ones says how bytes before
// markers are filled. It reports whether the body is valid, and there are exactly so many.
boolean form_scan(j_decompress_ptr cinfo, form_decoder *f, int ones, uint8_t *dst, size_t size);

// form_widths expands a class from its bits. mask_bits is more than 64 if it is invalid.
static inline form_class form_widths(uint32_t bits) {
	form_class c = {(uint8_t)((bits & 31) * 4), {0}, 0};
	for (int g = 0; g < form_groups; g++) {
		uint32_t width = bits >> (5 + 4 * g) & 15;
		c.width[g] = (uint8_t)(width == 15 ? 16 : width);
		c.wide |= g > 0 && c.width[g] > form_narrow;
	}
	return c;
}

#endif
