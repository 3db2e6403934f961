package instrument

import (
	"cmp"
	"slices"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// Measured returns what the script's processes measured of its job, over all ranks. The source, the
// caches and what hdmlp prepares are not in it. There must be a rank.
func (r *Record) Measured() *analysis.Measured {
	ranks := r.ranks()
	first := ranks[0].Loader
	m := &analysis.Measured{
		Version: analysis.Version, Ranks: len(ranks), Nodes: 1, Batch: first.Batch,
		Notes: slices.Clone(r.Notes),
	}
	m.Loader.Name = first.Kind
	if first.Kind == analysis.Torch {
		m.Loader.Workers = first.Workers * len(ranks)
		m.Loader.Streams = max(first.Workers, 1) * len(ranks)
	}
	r.iterations(m, ranks)
	r.preparation(m, ranks)
	r.dataset(m, ranks)
	return m
}

// iterations fills in the job as it is, and training.
func (r *Record) iterations(m *analysis.Measured, ranks []*Rank) {
	var asIs, training, device [][]float64
	count, from := 0, firstEpoch(ranks)
	m.First = from == 1
	for _, rank := range ranks {
		var all, steps, devices []span
		for _, i := range rank.AsIs {
			if i.Epoch < from {
				continue
			}
			m.Waited += i.Waited
			m.Computed += i.Step
			count++
			all = append(all, span{i.Waited + i.Step, i.Samples})
			m.Batch = max(m.Batch, i.Samples)
		}
		for _, i := range rank.Training {
			steps = append(steps, span{i.Step, i.Samples})
			if i.Device != nil {
				devices = append(devices, span{*i.Device, i.Samples})
			}
		}
		asIs = append(asIs, rates(all, rank.Loader.Workers))
		training = append(training, rates(steps, 1))
		device = append(device, rates(devices, 1))
	}
	m.AsIs = together(asIs)
	m.Training = together(training)
	m.Device = together(device)
	if count > 0 {
		m.Waited /= float64(count)
		m.Computed /= float64(count)
	}
	if m.Training == nil {
		m.Notes = append(m.Notes, analysis.Note{
			About: "training",
			Text:  "the script ended before enough iterations were measured",
		})
	}
}

// settled is how many iterations of later epochs are enough for the first one, in which caches may
// be empty, not to count.
const settled = 10

// firstEpoch returns from which epoch on, counted from 1, the job as it is counts.
func firstEpoch(ranks []*Rank) int {
	for _, rank := range ranks {
		n := len(rank.AsIs)
		if n < settled || rank.AsIs[n-settled].Epoch < 2 {
			return 1
		}
	}
	return 2
}

// preparation fills in what torch's loader prepares.
func (r *Record) preparation(m *analysis.Measured, ranks []*Rank) {
	for _, w := range ranks[0].Preparation {
		var all [][]float64
		for _, rank := range ranks {
			for _, same := range rank.Preparation {
				if same.Workers == w.Workers {
					var spans []span
					for _, d := range same.Deliveries {
						spans = append(spans, span{d.Seconds, d.Samples})
					}
					all = append(all, rates(spans, w.Workers))
				}
			}
		}
		rate := together(all)
		if rate == nil || len(all) < len(ranks) {
			continue
		}
		m.Preparation = append(m.Preparation, analysis.Point{
			N: max(w.Workers, 1) * len(ranks), Rate: *rate,
		})
	}
}

// dataset fills in how much an epoch reads.
func (r *Record) dataset(m *analysis.Measured, ranks []*Rank) {
	files := ranks[0].Files
	for _, rank := range ranks {
		m.Dataset.Samples += rank.Loader.Samples
	}
	if m.Dataset.Samples == 0 {
		m.Dataset.Samples = cmp.Or(files.Samples, 1)
		m.Dataset.NoSamples = files.Samples == 0
		m.Notes = append(m.Notes, analysis.Note{
			About: "dataset",
			Text:  "the loader does not say how many samples an epoch has",
		})
	}
	m.Batch = max(m.Batch, 1)
	bytes := int64(0)
	for _, size := range files.Sizes {
		bytes += size
	}
	if files.Count == 0 || bytes == 0 {
		// A size is needed to speak of caches, and there is nothing to be said of these.
		m.Dataset.MB, m.Dataset.NoSize = float64(m.Dataset.Samples)*unknown, true
		m.Notes = append(m.Notes, analysis.Note{
			About: "dataset",
			Text: "the size of samples is not known: no rate in MB/s is given, and the numbers of " +
				"bytes in the JSON are assumed",
		})
		return
	}
	m.Dataset.MB = float64(bytes) / 1e6 / float64(files.Count) * float64(m.Dataset.Samples)
}

// unknown is the size of a sample of which nothing is known, in MB.
const unknown = 0.1
