//go:build cgo

#include "idct.h"

#include "form.h"

#if defined(__x86_64__)
#include <immintrin.h>

// libjpeg's inverse DCT in C, which has 32 bits where vector code has 16.
void jpeg_idct_islow(j_decompress_ptr cinfo, jpeg_component_info *component, JCOEFPTR block,
	JSAMPARRAY rows, JDIMENSION column);

// Vectors of pairs of 16 bits: 8 pairs twice.
typedef int16_t pairs[32] __attribute__((aligned(64)));

// For a pass over lines of a block (first its columns, then its rows), where numbers k and m of
// each line are in two registers.
typedef struct { pairs of_2_6, of_0_4, of_7_1, of_5_3; } places;

#define EIGHT(p, k, m) \
	p(0, k), p(0, m), p(1, k), p(1, m), p(2, k), p(2, m), p(3, k), p(3, m), \
	p(4, k), p(4, m), p(5, k), p(5, m), p(6, k), p(6, m), p(7, k), p(7, m)
#define TWICE(p, k, m) {EIGHT(p, k, m), EIGHT(p, k, m)}
#define PLACES(p) {TWICE(p, 2, 6), TWICE(p, 0, 4), TWICE(p, 7, 1), TWICE(p, 5, 3)}
// As libjpeg stores a block, and as a pass leaves results.
#define STORED(line, k) ((k) * 8 + (line))
#define FIRST(k) \
	((k) == 0 ? 0 : (k) == 1 ? 16 : (k) == 2 ? 48 : (k) == 3 ? 32 : (k) == 4 ? 36 : \
	(k) == 5 ? 52 : (k) == 6 ? 20 : 4)
#define LEFT(line, k) (FIRST(line) + (k) / 4 * 8 + (k) % 4)

static const places of_columns = PLACES(STORED), of_rows = PLACES(LEFT);

#define FOUR(a, b) a, b, a, b, a, b, a, b
#define FACTORS(a, b, c, d) {FOUR(a, b), FOUR(a, b), FOUR(c, d), FOUR(c, d)}

// The factors of jidctint.c, times 2^13, as jidctint-avx2.asm multiplies pairs by them.
static const pairs
	tmp3_tmp2 = FACTORS(4433 + 6270, 4433, 4433, 4433 - 15137),
	tmp0_tmp1 = FACTORS(1, 1, 1, -1),
	z3_z4 = FACTORS(9633 - 16069, 9633, 9633, 9633 - 3196),
	tmp0_tmp3 = FACTORS(2446 - 7373, -7373, -7373, 12299 - 7373),
	tmp2_tmp1 = FACTORS(-20995, 25172 - 20995, 16819 - 20995, -20995);

#define LOAD(p) _mm512_load_si512(p)

// pass transforms the lines of a block, whose numbers are in two registers, and rounds the results,
// which have shift more bits.
INLINE FORM_AVX512 void pass(__m512i block[2], const places *at, int shift) {
	__m512i in26 = _mm512_permutex2var_epi16(block[0], LOAD(at->of_2_6), block[1]);
	__m512i in04 = _mm512_permutex2var_epi16(block[0], LOAD(at->of_0_4), block[1]);
	__m512i in71 = _mm512_permutex2var_epi16(block[0], LOAD(at->of_7_1), block[1]);
	__m512i in53 = _mm512_permutex2var_epi16(block[0], LOAD(at->of_5_3), block[1]);

	__m512i even = _mm512_madd_epi16(in26, LOAD(tmp3_tmp2));
	// The sums have 16 bits.
	__m512i first = _mm512_slli_epi32(_mm512_madd_epi16(in04, LOAD(tmp0_tmp1)), 16);
	first = _mm512_add_epi32(_mm512_srai_epi32(first, 3), _mm512_set1_epi32(1 << (shift - 1)));
	__m512i tmp10_11 = _mm512_add_epi32(first, even), tmp13_12 = _mm512_sub_epi32(first, even);

	__m512i z = _mm512_madd_epi16(_mm512_add_epi16(in71, _mm512_rol_epi32(in53, 16)), LOAD(z3_z4));
	__m512i odd03 = _mm512_add_epi32(_mm512_madd_epi16(in71, LOAD(tmp0_tmp3)), z);
	__m512i odd21 = _mm512_add_epi32(_mm512_madd_epi16(in53, LOAD(tmp2_tmp1)), z);
	__m512i odd32 = _mm512_shuffle_i64x2(odd03, odd21, 0x4e);
	__m512i odd01 = _mm512_mask_blend_epi64(0xf0, odd03, odd21);

	// Of each line, numbers 0 and 1, and so on.
	__m512i out01 = _mm512_srai_epi32(_mm512_add_epi32(tmp10_11, odd32), shift);
	__m512i out76 = _mm512_srai_epi32(_mm512_sub_epi32(tmp10_11, odd32), shift);
	__m512i out32 = _mm512_srai_epi32(_mm512_add_epi32(tmp13_12, odd01), shift);
	__m512i out45 = _mm512_srai_epi32(_mm512_sub_epi32(tmp13_12, odd01), shift);
	block[0] = _mm512_packs_epi32(out01, out76);
	block[1] = _mm512_packs_epi32(out32, out45);
}

// Where the samples are after the second pass, packed: of the first register, 8 of each 16.
#define PACKED_AT(n) ((n) / 32 * 8 + (n) % 32 / 8 * 16 + (n) % 8)
#define PACKED(line, k) PACKED_AT(LEFT(k, line))
#define ROW(line) \
	PACKED(line, 0), PACKED(line, 1), PACKED(line, 2), PACKED(line, 3), \
	PACKED(line, 4), PACKED(line, 5), PACKED(line, 6), PACKED(line, 7)

static const uint8_t packed[64] __attribute__((aligned(64))) = {
	ROW(0), ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7),
};

static FORM_AVX512 void idct_avx512(j_decompress_ptr cinfo, jpeg_component_info *component,
	JCOEFPTR coefficients, JSAMPARRAY rows, JDIMENSION column) {
	(void)cinfo;
	const int16_t *quantizers = component->dct_table;
	__m512i block[2] = {_mm512_loadu_si512(coefficients), _mm512_loadu_si512(coefficients + 32)};
	__m512i rest = _mm512_or_si512(_mm512_maskz_mov_epi64(0xfc, block[0]), block[1]);
	block[0] = _mm512_mullo_epi16(block[0], _mm512_loadu_si512(quantizers));
	if (_mm512_test_epi64_mask(rest, rest) != 0) {
		block[1] = _mm512_mullo_epi16(block[1], _mm512_loadu_si512(quantizers + 32));
		pass(block, &of_columns, 11);
	} else {
		// Only the first row is not 0: the columns are constant. libjpeg does not saturate here.
		__m512i row = _mm512_slli_epi16(block[0], 2);
		row = _mm512_permutex_epi64(_mm512_shuffle_i64x2(row, row, 0), 0x50);
		block[0] = block[1] = row;
	}
	pass(block, &of_rows, 18);
	__m512i samples = _mm512_permutexvar_epi8(
		_mm512_load_si512(packed), _mm512_packs_epi16(block[0], block[1]));
	samples = _mm512_xor_si512(samples, _mm512_set1_epi8(-128));
	__m128i two[4] = {_mm512_castsi512_si128(samples), _mm512_extracti32x4_epi32(samples, 1),
	                  _mm512_extracti32x4_epi32(samples, 2), _mm512_extracti32x4_epi32(samples, 3)};
	for (int y = 0; y < 4; y++) {
		_mm_storel_epi64((__m128i *)(rows[2 * y] + column), two[y]);
		_mm_storeh_pd((double *)(rows[2 * y + 1] + column), _mm_castsi128_pd(two[y]));
	}
}
#endif

void idct_start(j_decompress_ptr cinfo, int level) {
#if defined(__x86_64__)
	if (form_level(level) != form_avx512 || cinfo->dct_method != JDCT_ISLOW)
		return;
	for (int i = 0; i < cinfo->num_components; i++)
		if (cinfo->comp_info[i].DCT_SCALED_SIZE == DCTSIZE &&
		    cinfo->idct->inverse_DCT[i] != jpeg_idct_islow)
			cinfo->idct->inverse_DCT[i] = idct_avx512;
#else
	(void)cinfo;
	(void)level;
#endif
}
