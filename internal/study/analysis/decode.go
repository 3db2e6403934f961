package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/hdmlp/hdmlp/internal/lib/files"
	"github.com/hdmlp/hdmlp/internal/model"
)

// maxBytes is the largest file that Read reads.
const maxBytes = 4 << 20

// Read reads what was measured from a file with the JSON of a Report, of which only that counts.
// Its error names the file, and what is wrong with it.
func Read(path string) (*Measured, error) {
	data, err := files.Read(path, maxBytes)
	if err != nil {
		var named *fs.PathError
		if errors.As(err, &named) {
			err = named.Err
		}
		return nil, fmt.Errorf("%s: cannot read the analysis (JSON of at most %d MiB): %w", path,
			maxBytes>>20, err)
	}
	m, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Decode returns what was measured, from the JSON of a Report.
func Decode(data []byte) (*Measured, error) {
	var report struct {
		Measured json.RawMessage `json:"measured"`
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return nil, fmt.Errorf("not the JSON of an analysis: %w", err)
	}
	if len(report.Measured) == 0 {
		return nil, errors.New(`not the JSON of an analysis: it lacks "measured"`)
	}
	m := new(Measured)
	d := json.NewDecoder(bytes.NewReader(report.Measured))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("measured: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("measured: %w", err)
	}
	return m, nil
}

// Limits of what Measured may say.
const (
	mostSamples = 1 << 40
	mostRanks   = 1 << 20
	mostN       = 1 << 16
	mostPoints  = 1024
	mostMB      = 1e15
	leastRate   = 1e-9 // samples/s
	mostRate    = 1e12
)

// Validate returns an error if conclusions cannot be drawn. It joins everything that is wrong; each
// part names the key, its value and what is allowed.
func (m *Measured) Validate() error {
	var errs []error
	if m.Version != Version {
		errs = append(errs, fmt.Errorf("version is %d; this program reads %d", m.Version, Version))
	}
	number := func(key string, v, least, most float64) {
		if !(v >= least && v <= most) || math.IsInf(v, 0) {
			errs = append(errs, fmt.Errorf("%s is %v; it must be from %g to %g", key, v, least, most))
		}
	}
	number("dataset.samples", float64(m.Dataset.Samples), 1, mostSamples)
	number("dataset.mb", m.Dataset.MB, 1e-6, mostMB)
	if m.Loader.Name != HDMLP && m.Loader.Name != Torch {
		errs = append(errs, fmt.Errorf("loader.name is %q; it must be %q or %q", m.Loader.Name, HDMLP,
			Torch))
	}
	number("loader.workers", float64(m.Loader.Workers), 0, mostN)
	number("loader.streams", float64(m.Loader.Streams), 0, mostN)
	number("loader.cache_mb", m.Loader.CacheMB, 0, mostMB)
	number("loader.directory_mb", m.Loader.DirectoryMB, 0, mostMB)
	number("batch_samples", float64(m.Batch), 1, mostSamples)
	number("ranks", float64(m.Ranks), 1, mostRanks)
	number("nodes", float64(m.Nodes), 1, float64(max(m.Ranks, 1)))
	number("nodes", float64(m.Nodes), 1, mostN)
	number("cores", float64(m.Cores), 1, mostN)
	number("memory_bytes", float64(m.Room), 0, mostMB*mega)
	number("source_processor_s", m.SourceWork, 0, 1e6)
	number("waited_s_per_iteration", m.Waited, 0, 1e9)
	number("computed_s_per_iteration", m.Computed, 0, 1e9)
	for _, r := range []struct {
		key  string
		rate *Rate
	}{
		{"training", m.Training},
		{"device", m.Device},
		{"memory", m.Memory},
		{"directory", m.Directory},
		{"peers", m.Peers},
		{"as_is", m.AsIs},
	} {
		if r.rate != nil {
			errs = append(errs, r.rate.validate(r.key))
		}
	}
	if m.Forms != nil {
		number("forms.time", m.Forms.Time, 1e-6, 1)
		number("forms.size", m.Forms.Size, 1, model.MostForm)
	}
	for _, c := range []struct {
		key    string
		points []Point
	}{
		{"preparation", m.Preparation},
		{"preparation_by_hdmlp", m.Switched},
		{"source", m.Source},
		{"source_by_nodes", m.Sources},
	} {
		errs = append(errs, validate(c.key, c.points))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := m.Run().Validate(); err != nil {
		return fmt.Errorf("in the performance model, of samples of %.3g MB: %w", m.sample(), err)
	}
	return nil
}

func validate(key string, points []Point) error {
	if len(points) > mostPoints {
		return fmt.Errorf("%s has %d points; at most %d are allowed", key, len(points), mostPoints)
	}
	var errs []error
	for i, p := range points {
		at := fmt.Sprintf("%s.%d", key, i)
		if p.N < 1 || p.N > mostN || i > 0 && p.N <= points[i-1].N {
			errs = append(errs, fmt.Errorf("%s.n is %d; it must be from 1 to %d, and ascend", at, p.N,
				mostN))
		}
		if p.Streams < 0 || p.Streams > mostN {
			errs = append(errs, fmt.Errorf("%s.streams is %d; it must be from 0 to %d", at, p.Streams,
				mostN))
		}
		errs = append(errs, p.validate(at))
	}
	return errors.Join(errs...)
}

func (r *Rate) validate(key string) error {
	if !(r.Low >= leastRate && r.Low <= r.Median && r.Median <= r.High && r.High <= mostRate) {
		return fmt.Errorf("%s is %v samples/s, from %v to %v; they must be from %g to %g, and the low "+
			"one at most the median, that at most the high one", key, r.Median, r.Low, r.High,
			leastRate, float64(mostRate))
	}
	return nil
}
