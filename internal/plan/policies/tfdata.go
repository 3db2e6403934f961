package policies

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/option"
	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
	"github.com/hdmlp/hdmlp/internal/plan/builder"
	"github.com/hdmlp/hdmlp/internal/plan/reorder"
)

// TFData reads ahead and keeps nothing, in the order of a pipeline of tf.data: files in a random
// order, and a shuffle buffer over what they hold (thesis 2.3; reorder.Buffered). It is tf.data's
// semantics, with other random numbers. The order is a full shuffle only if the buffer holds all
// that a rank reads.
type TFData struct {
	Buffer int   // samples; default 10,000 (0)
	File   int64 // bytes of a file, as of TFRecords; default 128 MB (0)
}

const (
	defaultBuffer = 10_000
	defaultFile   = 128_000_000
)

var tfDataOptions = []option.Option{
	{
		Key: "buffer", Kind: option.Int, Default: fmt.Sprint(defaultBuffer), Min: 1, Max: 1 << 30,
		Help: "samples of each rank's shuffle buffer",
	},
	{
		Key: "file_size", Kind: option.Size, Default: sizeText(defaultFile), Min: 1, Max: 1 << 50,
		Help: "bytes of consecutive samples that are one file, as in TFRecords",
	},
}

// sizeText returns a number of bytes as an option has it.
func sizeText(bytes int64) string {
	if bytes%1e6 == 0 {
		return fmt.Sprintf("%dMB", bytes/1e6)
	}
	return fmt.Sprintf("%dB", bytes)
}

// Options implements plan.Optional.
func (TFData) Options() []option.Option { return tfDataOptions }

// With implements plan.Optional.
func (TFData) With(values option.Values) plan.Policy {
	return TFData{option.Get[int](values, "buffer"), option.Get[int64](values, "file_size")}
}

// filled returns the policy with its defaults.
func (t TFData) filled() TFData {
	if t.Buffer == 0 {
		t.Buffer = defaultBuffer
	}
	if t.File == 0 {
		t.File = defaultFile
	}
	return t
}

// Name returns "tfdata", with its options.
func (t TFData) Name() string {
	t = t.filled()
	return plan.Named("tfdata", tfDataOptions, fmt.Sprint(t.Buffer), sizeText(t.File))
}

// About describes the policy.
func (TFData) About() plan.About {
	return plan.About{
		Does:   "keeps nothing, and shuffles in a buffer, as tf.data",
		Engine: true,
		Stages: true,
		Line:   plan.Line{Colour: 0xb8860b, Dashed: true},
	}
}

// Plan returns a plan without copies.
func (t TFData) Plan(in plan.Input) (*plan.Plan, error) {
	return builder.Nothing(t.Name(), true, in)
}

// Order returns the order of the pipeline.
func (t TFData) Order(in plan.Input) (*access.Order, error) {
	if err := builder.NeedDrawn(t.Name(), &in, false); err != nil {
		return nil, err
	}
	t = t.filled()
	order := reorder.Buffered(&in, t.Name(), reorder.Files(&in, t.File), t.Buffer)
	return &order, nil
}
