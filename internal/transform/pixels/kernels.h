// The C twins of twin_resize.go and twin_pack.go: the same bits, faster. Their arguments are
// documented there and in kernels_cgo.go, which calls them.
#ifndef HDMLP_PIXELS_KERNELS_H
#define HDMLP_PIXELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// Levels of vector instructions. pixels_level returns the highest one that the machine supports.
enum { level_plain, level_avx2, level_avx512 };

int pixels_level(void);

// An axis, as in filter.go, and the position of src on it; taps is 0 if the axis is not resampled.
typedef struct {
	int taps, origin;
	const int32_t *first, *counts, *weights;
} pixels_axis;

// pixels_resample is resample.run. size is the number of bytes of src; rows holds the rows between
// the passes; scratch holds pixels_scratch bytes. A weight is below 2^23 - 2^15 in absolute value.
void pixels_resample(
	int level, uint8_t *dst, int width, int height, int channels,
	const uint8_t *src, int src_width, int src_height, int stride, size_t size,
	pixels_axis across, pixels_axis down, uint8_t *rows, uint8_t *scratch);

size_t pixels_scratch(int width, int height, int src_width, int horizontal_taps, int vertical_taps);

// How pixels_pack converts samples: the type of the tensor (Type in pack.go), and the table and the
// constants of the conversion per channel.
enum { type_uint8, type_float16, type_bfloat16, type_float32 };

typedef struct {
	int type, planar;
	int arithmetic; // whether vector arithmetic gives exactly words; otherwise words are looked up
	int unit, normalize;
	float mean[3], std[3], inverse[3]; // inverse is 1/std, rounded
	uint32_t words[3][256];
} pixels_plan;

// pixels_pack is Packer.pack; flip is a Flip.
void pixels_pack(int level, const pixels_plan *plan, uint8_t *dst, const uint8_t *src, int width,
	int height, int channels, int stride, int flip);

#endif
