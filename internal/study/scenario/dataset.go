package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

func (r *reader) dataset(path string, value any) {
	d := &r.scenario.Dataset
	table, _ := value.(map[string]any)
	_, index := table["index"]
	_, list := table["sizes"]
	if !index && !list {
		r.drawnDataset(path, value, table)
		return
	}
	open := func(load func(path string) ([]float64, error)) func(string, any) {
		return func(key string, v any) {
			name, ok := v.(string)
			if !ok || name == "" {
				r.fault(key, v, "not the name of a file", "a path, relative to the scenario file")
				return
			}
			d.File = r.file.resolve(name)
			found, err := load(d.File)
			if err != nil {
				r.fault(key, v, err.Error(), "")
			}
			d.Samples = len(found)
		}
	}
	drawn := func(key string, v any) {
		r.fault(key, v, "the samples come from a file already",
			"either index, or sizes, or samples and a distribution")
	}
	fields := []field{
		{name: "index", read: open(r.file.indexOf)},
		{name: "sizes", read: open(r.file.listOf)},
	}
	for _, name := range append([]string{"samples", "distribution"}, parameters...) {
		fields = append(fields, field{name: name, read: drawn})
	}
	if index && list {
		fields[1].read = drawn
	}
	r.table(path, value, fields)
}

// parameters are the keys of distributions.
var parameters = []string{"mu", "sigma", "min", "max", "bounds", "weights", "histogram"}

// parametersOf are those that a distribution needs, and may have.
var parametersOf = map[sizes.Kind]struct{ needs, may []string }{
	sizes.Normal:    {[]string{"mu"}, []string{"sigma", "min", "max"}},
	sizes.Lognormal: {[]string{"mu", "sigma"}, []string{"min", "max"}},
	sizes.Gamma:     {[]string{"mu", "sigma"}, []string{"min", "max"}},
	sizes.Uniform:   {[]string{"min", "max"}, nil},
	sizes.Constant:  {[]string{"mu"}, nil},
	// bounds and weights, or histogram, are checked together
	sizes.Histogram: {nil, []string{"bounds", "weights", "histogram", "min", "max"}},
}

// drawnDataset reads a dataset whose sizes are drawn.
func (r *reader) drawnDataset(path string, value any, table map[string]any) {
	d := &r.scenario.Dataset
	d.Sizes.Kind = sizes.Normal
	if v, given := table["distribution"]; given {
		var names []string
		for _, kind := range sizes.Kinds() {
			names = append(names, string(kind))
		}
		name, _ := v.(string)
		if !slices.Contains(names, name) {
			r.fault(join(path, "distribution"), v, "not a distribution"+human.Nearest(name, names),
				human.List(names))
			return // what else is needed depends on it
		}
		d.Sizes.Kind = sizes.Kind(name)
	}
	var bounds, weights []float64
	read := map[string]func(string, any){
		"mu":      r.aboveZero(&d.Sizes.Mu, envfile.Size),
		"sigma":   r.quantity(&d.Sizes.Sigma, envfile.Size),
		"min":     r.quantity(&d.Sizes.Min, envfile.Size),
		"max":     r.aboveZero(&d.Sizes.Max, envfile.Size),
		"bounds":  r.numbers(&bounds, envfile.Size),
		"weights": r.weights(&weights),
		"histogram": func(key string, v any) {
			r.histogram(key, v)
		},
	}
	if d.Sizes.Kind == sizes.Lognormal || d.Sizes.Kind == sizes.Gamma {
		read["sigma"] = r.aboveZero(&d.Sizes.Sigma, envfile.Size)
	}
	of := parametersOf[d.Sizes.Kind]
	fields := []field{
		{
			"samples", "a whole number from 1; or give index or sizes, a file",
			r.whole(&d.Samples, 1, maxSamples),
		},
		{name: "distribution", read: ignored},
		{name: "index", read: nil},
		{name: "sizes", read: nil},
	}
	for _, name := range parameters {
		f := field{name: name, read: read[name]}
		switch {
		case slices.Contains(of.needs, name):
			f.required = envfile.Size.Allowed
		case !slices.Contains(of.may, name):
			f.read = func(key string, v any) {
				r.fault(key, v, fmt.Sprintf("the distribution %q has no such parameter", d.Sizes.Kind),
					human.List(append(slices.Clone(of.needs), of.may...)))
			}
		}
		fields = append(fields, f)
	}
	r.table(path, value, fields)
	if d.Sizes.Kind == sizes.Histogram {
		r.bins(path, table, bounds, weights)
	}
}

// numbers reads a list of quantities.
func (r *reader) numbers(to *[]float64, k envfile.Kind) func(string, any) {
	return func(key string, value any) {
		list, ok := value.([]any)
		if !ok {
			r.fault(key, value, "not a list", "a list, each "+k.Allowed)
			return
		}
		for i, entry := range list {
			v, fault := k.Read(fmt.Sprintf("%s.%d", key, i), entry)
			r.note(fault)
			*to = append(*to, v)
		}
	}
}

// weights reads a list of numbers of which each is 0 or more.
func (r *reader) weights(to *[]float64) func(string, any) {
	return func(key string, value any) {
		list, ok := value.([]any)
		if !ok {
			r.fault(key, value, "not a list", "a list of numbers, each 0 or more")
			return
		}
		for i, entry := range list {
			v, is := entry.(float64)
			if whole, isWhole := entry.(int64); isWhole {
				v, is = float64(whole), true
			}
			if !is || !(v >= 0) || v > maxWeight {
				r.fault(fmt.Sprintf("%s.%d", key, i), entry, "not a weight",
					fmt.Sprintf("a number from 0 to %g", float64(maxWeight)))
			}
			*to = append(*to, v)
		}
	}
}

// maxWeight is the largest weight of a bin.
const maxWeight = 1e15

// bins makes the bins of a histogram of its bounds and weights, unless they came from a file.
func (r *reader) bins(path string, table map[string]any, bounds, weights []float64) {
	d := &r.scenario.Dataset.Sizes
	_, file := table["histogram"]
	_, given := table["bounds"]
	_, weighted := table["weights"]
	switch {
	case file && (given || weighted):
		r.fault(join(path, "histogram"), table["histogram"], "the bins are given as well",
			"either histogram, or bounds and weights")
		return
	case file:
		return
	case !given || !weighted:
		r.fault(join(path, "bounds"), table["bounds"], "a histogram needs its bins",
			"bounds and weights, or histogram, a file")
		return
	case len(bounds) < 2 || len(weights) != len(bounds)-1:
		r.fault(join(path, "weights"), table["weights"],
			fmt.Sprintf("%d weights for %d bounds", len(weights), len(bounds)),
			"one weight for each two neighbouring bounds")
		return
	}
	for i, w := range weights {
		d.Bins = append(d.Bins, sizes.Bin{From: bounds[i], To: bounds[i+1], Weight: w})
	}
	if wrong := wrongBins(d.Bins); wrong != "" {
		r.fault(join(path, "bounds"), table["bounds"], wrong, "ascending bounds, a weight above 0")
		d.Bins = nil
	}
}

// wrongBins returns what is wrong with bins, or "".
func wrongBins(bins []sizes.Bin) string {
	sum := 0.0
	for i, b := range bins {
		if b.To <= b.From || i > 0 && b.From < bins[i-1].To {
			return fmt.Sprintf("bin %d, from %g to %g MB, does not ascend", i+1, b.From, b.To)
		}
		sum += b.Weight
	}
	if sum == 0 {
		return "no bin has a weight above 0"
	}
	if bins[len(bins)-1].To <= 0 {
		return "all sizes are 0"
	}
	return ""
}

// histogram reads the bins from a file.
func (r *reader) histogram(key string, value any) {
	name, ok := value.(string)
	if !ok || name == "" {
		r.fault(key, value, "not the name of a file", "a path, relative to the scenario file")
		return
	}
	bins, err := r.file.binsOf(r.file.resolve(name))
	if err != nil {
		r.fault(key, value, err.Error(), "a line for each bin: its lower bound and its upper bound, "+
			"in MB, and its weight, with commas between them")
		return
	}
	r.scenario.Dataset.Sizes.Bins = bins
}

// readBins reads a histogram: a line for each bin.
func readBins(path string) ([]sizes.Bin, error) {
	var bins []sizes.Bin
	err := eachLine(path, func(n int, line string) error {
		fields := strings.Split(line, ",")
		numbers := make([]float64, len(fields))
		for i, f := range fields {
			v, err := strconv.ParseFloat(strings.TrimSpace(f), 64)
			if err != nil || !(v >= 0) || v > maxWeight {
				return fmt.Errorf("line %d has %q, not a number from 0 to %g", n,
					envfile.Shorten(strings.TrimSpace(f)), float64(maxWeight))
			}
			numbers[i] = v
		}
		if len(numbers) != 3 {
			return fmt.Errorf("line %d has %d numbers, not 3", n, len(numbers))
		}
		bins = append(bins, sizes.Bin{From: numbers[0], To: numbers[1], Weight: numbers[2]})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(bins) == 0 {
		return nil, fmt.Errorf("%s has no bin", path)
	}
	if wrong := wrongBins(bins); wrong != "" {
		return nil, fmt.Errorf("%s", wrong)
	}
	return bins, nil
}

// sizes checks that draws are between min and max.
func (r *reader) sizes() {
	d := r.scenario.Dataset
	complete := d.File == "" && (d.Sizes.Mu > 0 || d.Sizes.Bins != nil ||
		d.Sizes.Kind == sizes.Uniform && d.Sizes.Max > 0)
	if !complete || len(r.faults) > 0 && d.Sizes.Kind == "" {
		return
	}
	s := d.Sizes
	if s.Kind == sizes.Normal && s.Min > s.Mu+4*s.Sigma {
		r.fault("dataset.min", s.Min,
			fmt.Sprintf("more than four sigma above mu = %s, so nearly every draw would be "+
				"drawn again",
				strconv.FormatFloat(s.Mu, 'g', -1, 64)), "at most mu + 4 sigma")
		return
	}
	if err := s.Check(); err != nil {
		key, value := "dataset.min", s.Min
		if s.Max > 0 {
			key, value = "dataset.max", s.Max
		}
		r.fault(key, value, err.Error(), "a range in which sizes are")
	}
}
