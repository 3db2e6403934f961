//go:build cgo

#include "entropy_table.h"

#include <string.h>

void entropy_table_set(entropy_table *t, const JHUFF_TBL *h, int is_ac) {
	int total = 0;
	for (int n = 1; n <= 16; n++)
		total += h->bits[n];
	if (t->set && t->is_ac == is_ac && memcmp(t->counts + 1, h->bits + 1, 16) == 0 &&
	    memcmp(t->symbol, h->huffval, (size_t)total) == 0)
		return;
	t->set = 1;
	t->is_ac = is_ac;
	memcpy(t->counts, h->bits, 17);
	memcpy(t->symbol, h->huffval, (size_t)total);

	// First the length and the symbol of the code that each window starts with.
	uint16_t length[1 << look] = {0};
	uint8_t symbol[1 << look];
	uint32_t code = 0;
	int index = 0;
	for (uint32_t n = 1; n <= 16; n++, code <<= 1) {
		t->offset[n] = index - (int32_t)code;
		for (int i = 0; i < h->bits[n]; i++, index++, code++)
			for (uint32_t w = n > look ? 1 << look : code << (look - n);
				w < 1 << look && w >> (look - n) == code; w++) {
				length[w] = (uint16_t)n;
				symbol[w] = h->huffval[index];
			}
		t->limit[n] = (int32_t)(code << (16 - n));
	}

	for (uint32_t w = 0; w < 1 << far && is_ac; w++) {
		uint32_t used = 0, about = 0, before = 0, rest = w >> (far - look);
		while (used < far && length[rest] != 0 && used + length[rest] <= far) {
			uint32_t run = run_of(symbol[rest], is_ac);
			before = about;
			about += run + 1;
			used += length[rest] + size_of(symbol[rest], is_ac);
			if (run == 64)
				break;
			rest = (w << used & ((1 << far) - 1)) >> (far - look);
		}
		t->skip[w] = before << 16 | about << 8 | used;
	}
	for (uint32_t w = 0; w < 1 << look; w++) {
		uint32_t n = length[w], size = size_of(symbol[w], is_ac), run = run_of(symbol[w], is_ac);
		if (n == 0) {
			t->entry[w] = unusable;
			continue;
		}
		uint32_t used = n + size, about = run + 1;
		uint64_t second = 0;
		if (is_ac && run != 64 && used < look) {
			// Bits outside the window are assumed to be 0; they must not matter.
			uint32_t rest = w << used & ((1 << look) - 1), m = length[rest],
				more = size_of(symbol[rest], is_ac);
			if (m != 0 && used + m + more <= look) {
				uint32_t value = rest >> (look - m - more) & ((1u << more) - 1);
				second = more == 0 ? 0 : (uint16_t)extend(value, more);
				about += run_of(symbol[rest], is_ac) + 1;
				used += m + more;
			}
		}
		t->entry[w] = second << 48 | (uint64_t)(n + size) << 40 | (uint64_t)about << 32 |
			run << 24 | (63 - size) << 16 |
		              n << 8 | used;
	}
}
