//go:build cgo

#include "form.h"

#include <string.h>

const uint8_t form_natural_order[64] = {
	 0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
	12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LITTLE_ENDIAN_64(x) __builtin_bswap64(x)
#else
#define LITTLE_ENDIAN_64(x) (x)
#endif

INLINE uint64_t load_64(const uint8_t *p) {
	uint64_t v;
	memcpy(&v, p, 8);
	return LITTLE_ENDIAN_64(v);
}

static uint32_t load_24(const uint8_t *p) {
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static uint32_t load_32(const uint8_t *p) { return load_24(p) | (uint32_t)p[3] << 24; }

// value returns a field's value.
INLINE int32_t value(uint64_t field) {
	int32_t negative = -(int32_t)(field & 1);
	return (((int32_t)(field >> 1) + 1) ^ negative) - negative;
}

// field returns the field of width bits at a bit after p.
INLINE uint64_t field(const uint8_t *p, uint32_t bit, uint32_t width) {
	return load_64(p + (bit >> 3)) >> (bit & 7) & ((1u << width) - 1);
}

// A block's head, and where its AC fields begin, in bits after its mask begins.
typedef struct {
	const uint8_t *p; // the mask
	form_class c;
	uint64_t mask;
	uint32_t fields;
	uint32_t n1, n2, n3; // AC coefficients of each group
} block_head;

// head reads a block's head, and adds the difference of the DC coefficient to dc. It returns the
// block's end, or NULL if its class is invalid.
INLINE const uint8_t *head(const form_decoder *f, const uint8_t *p, block_head *h, uint32_t *dc) {
	h->c = f->class[*p++];
	if (__builtin_expect(h->c.mask_bits == form_explicit, 0)) {
		h->c = form_widths(load_24(p));
		p += form_class_bytes;
		if (h->c.mask_bits > 64)
			return NULL;
	}
	uint32_t bits = h->c.mask_bits;
	uint64_t mask = bits == 0 ? 0 : load_64(p) & ~0ull >> (64 - bits);
	uint32_t has_dc = (uint32_t)mask & 1;
	*dc += (uint32_t)value(field(p, bits, h->c.width[0])) & -has_dc;
	h->p = p;
	h->mask = mask;
	h->fields = bits + has_dc * h->c.width[0];
	h->n1 = (uint32_t)__builtin_popcountll(mask & FORM_GROUP_1);
	h->n2 = (uint32_t)__builtin_popcountll(mask & FORM_GROUP_2);
	h->n3 = (uint32_t)__builtin_popcountll(mask & FORM_GROUP_3);
	uint32_t end =
		h->fields + h->n1 * h->c.width[1] + h->n2 * h->c.width[2] + h->n3 * h->c.width[3];
	return p + ((end + 7) >> 3);
}

// unpack stores a block's AC coefficients.
INLINE void unpack(const block_head *h, int16_t *block) {
	const uint64_t groups[] = {FORM_GROUP_1, FORM_GROUP_2, FORM_GROUP_3};
	uint32_t bit = h->fields;
	for (int g = 0; g < 3; g++) {
		uint32_t width = h->c.width[g + 1];
		for (uint64_t left = h->mask & groups[g]; left != 0; left &= left - 1) {
			block[form_natural_order[__builtin_ctzll(left)]] =
				(int16_t)value(field(h->p, bit, width));
			bit += width;
		}
	}
}

// mcu decodes or skips the MCU at f->next. Block k goes to *blocks[k]; if blocks is NULL,
// nowhere.
INLINE boolean mcu(form_decoder *f, JBLOCKROW *blocks, uint64_t *masks,
	void (*unpack)(const block_head *, int16_t *)) {
	const uint8_t *p = f->next;
	if (__builtin_expect((size_t)(f->end - p) < form_slack, 0) && f->end != f->tail + form_slack) {
		p = f->tail + ((size_t)(p - f->blocks) - f->tail_at);
		f->end = f->tail + form_slack;
	}
	for (int b = 0; b < f->block_count; b++) {
		block_head h;
		uint32_t *dc = &f->dc[f->block_component[b]];
		p = head(f, p, &h, dc);
		if (__builtin_expect(p == NULL, 0))
			return FALSE;
		if (blocks == NULL)
			continue;
		int16_t *block = *blocks[b];
		if (f->block_needs_ac[b] && h.mask > 1)
			unpack(&h, block);
		block[0] = (int16_t)*dc;
		if (masks != NULL)
			masks[b] = h.mask;
	}
	f->next = p;
	f->column++;
	return p <= f->end;
}

// seek goes to the begin of a row.
static boolean seek(form_decoder *f, uint32_t row) {
	size_t at = load_32(f->rows + 4 * (size_t)row);
	if (at > f->size)
		return FALSE;
	f->next = f->blocks + at;
	f->end = f->blocks + f->size;
	f->row = row;
	f->column = 0;
	memset(f->dc, 0, sizeof f->dc);
	return TRUE;
}

// requested decodes the MCU that libjpeg asks for, if it is in the requested columns.
INLINE boolean requested(form_decoder *f, JBLOCKROW *blocks,
	void (*unpack)(const block_head *, int16_t *)) {
	uint32_t row = f->asked_row, column = f->asked_column;
	if (++f->asked_column == f->columns) {
		f->asked_column = 0;
		f->asked_row++;
	}
	if (blocks == NULL || column < f->first_column || column > f->last_column)
		return TRUE;
	if (row != f->row && (row >= f->row_count || !seek(f, row)))
		return FALSE;
	while (f->column < column)
		if (!mcu(f, NULL, NULL, unpack))
			return FALSE;
	return mcu(f, blocks, NULL, unpack);
}

// DECODER defines an entropy decoder for libjpeg, and a decoder of the next MCU, by unpack.
#define DECODER(decode, next_mcu, unpack, target) \
	static target boolean decode(j_decompress_ptr cinfo, JBLOCKROW *blocks) { \
		form_decoder *f = form_of(cinfo); \
		if (__builtin_expect(!requested(f, blocks, unpack), 0)) \
			f->bail(cinfo); \
		return TRUE; \
	} \
	static target boolean next_mcu(form_decoder *f, JBLOCKROW *blocks, uint64_t *masks) { \
		return mcu(f, blocks, masks, unpack); \
	}

DECODER(decode, next_mcu, unpack, )

#if defined(__x86_64__)
static inline FORM_BMI2 void unpack_bmi2(const block_head *h, int16_t *block) { unpack(h, block); }

DECODER(decode_bmi2, next_mcu_bmi2, unpack_bmi2, FORM_BMI2)

// For each position in a block the coefficient there, in zigzag order.
static const int16_t zigzag_of[64] __attribute__((aligned(64))) = {
	 0,  1,  5,  6, 14, 15, 27, 28,  2,  4,  7, 13, 16, 26, 29, 42,
	 3,  8, 12, 17, 25, 30, 41, 43,  9, 11, 18, 24, 31, 40, 44, 53,
	10, 19, 23, 32, 39, 45, 52, 54, 20, 22, 33, 38, 46, 51, 55, 60,
	21, 34, 37, 47, 50, 56, 59, 61, 35, 36, 48, 49, 57, 58, 62, 63,
};

static const int16_t lanes_0_to_31[32] __attribute__((aligned(64))) = {
	 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15,
	16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
};

// values returns the values of fields of which each lies in two of the 64 bytes from p on. at is
// the field's first bit, width its width.
static inline FORM_AVX512 __m512i values(const uint8_t *p, __m512i at, __m512i width) {
	// The two bytes of each field, as a number of 16 bits.
	__m512i low = _mm512_srli_epi16(at, 3);
	__m512i bytes = _mm512_add_epi16(
		_mm512_or_si512(low, _mm512_slli_epi16(low, 8)), _mm512_set1_epi16(0x100));
	__m512i two = _mm512_permutexvar_epi8(bytes, _mm512_loadu_si512(p));
	// Shifts to the left, then to the right, leave the field.
	__m512i shift = _mm512_sub_epi16(_mm512_set1_epi16(16), width);
	__m512i offset = _mm512_and_si512(at, _mm512_set1_epi16(7));
	__m512i field = _mm512_srlv_epi16(_mm512_sllv_epi16(two, _mm512_sub_epi16(shift, offset)), shift);
	__m512i one = _mm512_set1_epi16(1);
	__m512i magnitude = _mm512_add_epi16(_mm512_srli_epi16(field, 1), one);
	return _mm512_mask_sub_epi16(
		magnitude, _mm512_test_epi16_mask(field, one), _mm512_setzero_si512(), magnitude);
}

// unpack_avx512 computes lane n, the n-th coefficient that is not 0, then expands the lanes by the
// mask.
static inline FORM_AVX512 void unpack_avx512(const block_head *h, int16_t *block) {
	if (__builtin_expect(h->c.wide, 0)) {
		unpack(h, block);
		return;
	}
	const __m512i lanes = _mm512_load_si512(lanes_0_to_31);
	const uint8_t *p = h->p + (h->fields >> 3);
	// In a group, lane n begins at bit n * width + first.
	uint32_t before_2 = h->n1, before_3 = h->n1 + h->n2;
	uint32_t w1 = h->c.width[1], w2 = h->c.width[2], w3 = h->c.width[3];
	uint32_t first_1 = h->fields & 7, first_2 = first_1 + before_2 * w1 - before_2 * w2,
		first_3 = first_2 + before_3 * w2 - before_3 * w3;
	__mmask32 from_2 = ~0u << before_2, from_3 = ~0u << before_3; // at most 27
	__m512i width = _mm512_set1_epi16((int16_t)w1), first = _mm512_set1_epi16((int16_t)first_1);
	width = _mm512_mask_set1_epi16(width, from_2, (int16_t)w2);
	first = _mm512_mask_set1_epi16(first, from_2, (int16_t)first_2);
	width = _mm512_mask_set1_epi16(width, from_3, (int16_t)w3);
	first = _mm512_mask_set1_epi16(first, from_3, (int16_t)first_3);
	__m512i at = _mm512_add_epi16(_mm512_mullo_epi16(lanes, width), first);
	__m512i some = values(p, at, width);

	uint32_t low_mask = (uint32_t)h->mask & ~1u, high_mask = (uint32_t)(h->mask >> 32);
	__m512i low = _mm512_maskz_expand_epi16(low_mask, some);
	const __m512i order_0 = _mm512_load_si512(zigzag_of),
		order_1 = _mm512_load_si512(zigzag_of + 32);
	__m512i high = _mm512_setzero_si512();
	if (high_mask != 0) {
		uint32_t below = (uint32_t)__builtin_popcountll(low_mask);
		__m512i from = _mm512_add_epi16(lanes, _mm512_set1_epi16((int16_t)below)), rest = some;
		if (before_3 + h->n3 > 32) { // the lanes from 32 on are of the last group
			uint32_t bit = 32 * w3 + first_3;
			__m512i w = _mm512_set1_epi16((int16_t)w3);
			rest = values(p + (bit >> 3),
				_mm512_add_epi16(
					_mm512_mullo_epi16(lanes, w), _mm512_set1_epi16((int16_t)(bit & 7))), w);
		}
		high = _mm512_maskz_expand_epi16(high_mask, _mm512_permutex2var_epi16(some, from, rest));
	}
	_mm512_storeu_si512(block, _mm512_permutex2var_epi16(low, order_0, high));
	_mm512_storeu_si512(block + 32, _mm512_permutex2var_epi16(low, order_1, high));
}

DECODER(decode_avx512, next_mcu_avx512, unpack_avx512, FORM_AVX512)

#endif

int form_level(int level) {
	int most = form_portable;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("bmi2") && __builtin_cpu_supports("lzcnt") &&
	    __builtin_cpu_supports("popcnt")) {
		int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
			__builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vl") &&
			__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
		most = avx512 ? form_avx512 : form_bmi2;
	}
#endif
	return level == 0 || level > most ? most : level;
}

boolean form_mcu(form_decoder *f, int16_t (*blocks)[64], uint64_t *masks) {
	if (f->column == f->columns && !seek(f, f->row + 1))
		return FALSE;
	JBLOCKROW rows[D_MAX_BLOCKS_IN_MCU];
	for (int b = 0; b < f->block_count; b++)
		rows[b] = (JBLOCKROW)&blocks[b];
	return f->next_mcu(f, rows, masks);
}

boolean form_start(j_decompress_ptr cinfo, form_decoder *f, const uint8_t *body, size_t size,
	int level, void (*bail)(j_decompress_ptr)) {
	if (cinfo->inputctl->has_multiple_scans || cinfo->comps_in_scan != cinfo->num_components)
		return FALSE;
	f->columns = cinfo->MCUs_per_row;
	f->row_count = cinfo->MCU_rows_in_scan;
	size_t classes = size == 0 ? 0 : body[0];
	size_t table = 1 + classes * form_class_bytes, rows = 4 * (size_t)f->row_count;
	if (size < table + rows)
		return FALSE;
	for (size_t i = 0; i < 256; i++)
		f->class[i] = (form_class){form_explicit, {0}, 0};
	for (size_t i = 0; i < classes; i++) {
		f->class[i] = form_widths(load_24(body + 1 + i * form_class_bytes));
		if (f->class[i].mask_bits > 64)
			return FALSE;
	}
	f->rows = body + table;
	f->blocks = f->rows + rows;
	f->size = size - table - rows;
	// The tail ends with the blocks at its middle, whether there are as many or not.
	size_t copied = f->size < form_slack ? f->size : form_slack;
	f->tail_at = f->size - form_slack; // may wrap around; so does its use
	memcpy(f->tail + form_slack - copied, f->blocks + f->size - copied, copied);
	memset(f->tail + form_slack, 0, form_slack);

	f->block_count = cinfo->blocks_in_MCU;
	for (int b = 0; b < f->block_count; b++) {
		int i = cinfo->MCU_membership[b];
		f->block_component[b] = (uint8_t)i;
		f->block_needs_ac[b] = cinfo->cur_comp_info[i]->DCT_SCALED_SIZE > 1;
	}
	f->first_column = cinfo->master->first_iMCU_col;
	f->last_column = cinfo->master->last_iMCU_col;
	f->asked_row = f->asked_column = 0;
	f->bail = bail;
	if (!seek(f, 0))
		return FALSE;
	cinfo->entropy->decode_mcu = decode;
	f->next_mcu = next_mcu;
	f->level = form_level(level);
#if defined(__x86_64__)
	if (f->level == form_bmi2) {
		cinfo->entropy->decode_mcu = decode_bmi2;
		f->next_mcu = next_mcu_bmi2;
	} else if (f->level == form_avx512) {
		cinfo->entropy->decode_mcu = decode_avx512;
		f->next_mcu = next_mcu_avx512;
	}
#endif
	return TRUE;
}
