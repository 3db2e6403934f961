package instrument

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/hdmlp/hdmlp/internal/study/analysis"
)

// Record is what the processes of a script said.
type Record struct {
	Pythons int           // processes that loaded the hook
	Refused string        // why nothing is measured; "": it is
	Lost    string        // why the measurements ended early; "": they did not
	Job     *Job          // nil: all ranks of the job are of this script
	Ranks   map[int]*Rank // by number
	Notes   []analysis.Note
}

// Job is a job of which several scripts have the ranks, each measured by a command on its node.
type Job struct {
	Node   int    `json:"node"` // of this script
	Nodes  int    `json:"nodes"`
	Ranks  int    `json:"ranks"` // of this script
	Host   string `json:"host"`  // of node 0
	Port   int    `json:"port"`  // that is free there
	Secret string `json:"secret"`
}

// Rank is what a rank said.
type Rank struct {
	Loader      Loader
	AsIs        []Iteration // of the job as it is
	Training    []Iteration // with batches that are ready
	Preparation []Workers
	Files       Files
	Uncached    bool        // the page cache does not keep files
	Transforms  *Transforms // nil: not known
	Ended       bool        // it has measured everything
	Phase       string      // that it was in last; "": the job as it is
}

// Loader is the loader that a rank iterates.
type Loader struct {
	PID      int            `json:"pid"`
	Rank     int            `json:"rank"`
	Ranks    int            `json:"ranks"`
	Kind     string         `json:"kind"` // "torch" or "hdmlp"
	Text     string         `json:"text"`
	Iterable bool           `json:"iterable"`
	Workers  int            `json:"workers"`
	Batch    int            `json:"batch"`   // samples; 0: not known
	Samples  int            `json:"samples"` // of an epoch of the rank; 0: not known
	Keys     map[string]any `json:"keys"`    // of the configuration
	Config   string         `json:"config"`  // the file of other keys; "": the default one
}

// Iteration is one iteration of a training loop.
type Iteration struct {
	Waited  float64  // s, for the batch
	Step    float64  // s, from the batch to the next call
	Device  *float64 // s of the step on a device; nil: there is none
	Samples int
	Epoch   int // in which the job as it is was, from 1
}

// Workers is what a number of worker processes delivered; 0: the process itself.
type Workers struct {
	Workers    int
	Deliveries []Delivery
}

// Delivery is a batch that was delivered some time after the one before.
type Delivery struct {
	Seconds float64
	Samples int
}

// Files describes where samples are.
type Files struct {
	Paths   []string `json:"paths"`   // of some samples, in random order
	Offsets []int64  `json:"offsets"` // where the samples' parts begin; null: with their files
	Sizes   []int64  `json:"sizes"`   // bytes
	Count   int      `json:"count"`   // of samples that these are of
	Samples int      `json:"samples"` // of the dataset
}

// Each returns how many files a sample has.
func (f *Files) Each() float64 { return float64(len(f.Paths)) / float64(max(f.Count, 1)) }

// Transforms is what hdmlp does, or would do, with samples.
type Transforms struct {
	List json.RawMessage `json:"transforms"` // as package transform takes it; null: nothing
	Left string          `json:"left"`       // why that is not all; "": it is
}

// message is a line that a process sends.
type message struct {
	Event      string `json:"event"`
	About      string `json:"about"`
	Text       string `json:"text"`
	Name       string `json:"name"`
	Workers    *int   `json:"workers"`
	Iterations [][]*float64
	Deliveries [][2]float64
}

// longest is the longest line: some thousands of paths.
const longest = 64 << 20

// lines calls take for each line.
func lines(in io.Reader, take func(line []byte) error) error {
	s := bufio.NewScanner(in)
	s.Buffer(make([]byte, 64<<10), longest)
	for s.Scan() {
		if err := take(s.Bytes()); err != nil {
			return err
		}
	}
	return s.Err()
}

// take adds a line of a connection. rank is that of the connection, which its first message of a
// loader sets.
func (r *Record) take(line []byte, rank **Rank) (m message, err error) {
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("a message of the script's processes: %w", err)
	}
	switch m.Event {
	case "python":
		r.Pythons++
		return m, nil
	case "refused":
		r.Refused = m.Text
		return m, nil
	case "lost":
		r.Lost = m.Text
		return m, nil
	case "nodes":
		r.Job = new(Job)
		return m, json.Unmarshal(line, r.Job)
	case "note":
		r.note(m.About, m.Text)
		return m, nil
	case "loader":
		var l Loader
		if err := json.Unmarshal(line, &l); err != nil {
			return m, err
		}
		if r.Ranks == nil {
			r.Ranks = map[int]*Rank{}
		}
		// A process sends it again if another loader is measured from then on.
		if before := r.Ranks[l.Rank]; before != nil && before.Loader.PID != l.PID {
			r.note("", fmt.Sprintf("process %d, which iterated %s, ended after %d counted iterations, "+
				"too early to be measured; a later process of rank %d was measured", before.Loader.PID,
				before.Loader.Text, len(before.AsIs), l.Rank))
		}
		*rank = &Rank{Loader: l}
		r.Ranks[l.Rank] = *rank
		return m, nil
	}
	if *rank == nil {
		return m, fmt.Errorf("a process sent %q before its loader", m.Event)
	}
	return m, (*rank).take(m, line)
}

func (r *Rank) take(m message, line []byte) error {
	switch m.Event {
	case "phase":
		r.Phase = m.Name
		return nil
	case "as_is":
		return iterations(m.Iterations, 4, func(v []*float64) {
			r.AsIs = append(r.AsIs, Iteration{
				Waited: *v[0], Step: *v[1], Samples: int(*v[2]), Epoch: int(*v[3]),
			})
		}, 0, 1, 2, 3)
	case "training":
		return iterations(m.Iterations, 3, func(v []*float64) {
			r.Training = append(r.Training, Iteration{Step: *v[0], Device: v[1], Samples: int(*v[2])})
		}, 0, 2)
	case "preparation":
		if m.Workers == nil {
			return errors.New("preparation by an unknown number of workers")
		}
		w := Workers{Workers: *m.Workers}
		for _, d := range m.Deliveries {
			w.Deliveries = append(w.Deliveries, Delivery{d[0], int(d[1])})
		}
		r.Preparation = append(r.Preparation, w)
		return nil
	case "files":
		if err := json.Unmarshal(line, &r.Files); err != nil {
			return err
		}
		if f := &r.Files; len(f.Paths) != len(f.Sizes) ||
			f.Offsets != nil && len(f.Paths) != len(f.Offsets) {
			return errors.New("files and their sizes differ in number")
		}
		return nil
	case "uncached":
		r.Uncached = true
		return nil
	case "transforms":
		r.Transforms = new(Transforms)
		return json.Unmarshal(line, r.Transforms)
	case "end":
		r.Ended = true
		return nil
	}
	return fmt.Errorf("unknown message %q", m.Event)
}

// iterations calls add for each list of so many numbers, of which those at needed are not null.
func iterations(all [][]*float64, numbers int, add func([]*float64), needed ...int) error {
	for _, v := range all {
		if len(v) != numbers || slices.ContainsFunc(needed, func(i int) bool { return v[i] == nil }) {
			return errors.New("an iteration lacks numbers")
		}
		add(v)
	}
	return nil
}

// note adds a note, once: ranks say the same.
func (r *Record) note(about, text string) {
	n := analysis.Note{About: about, Text: text}
	if !slices.Contains(r.Notes, n) {
		r.Notes = append(r.Notes, n)
	}
}

// First returns the lowest rank; nil: there is none.
func (r *Record) First() *Rank {
	if len(r.Ranks) == 0 {
		return nil
	}
	return r.ranks()[0]
}

// ranks returns the ranks in order.
func (r *Record) ranks() []*Rank {
	all := make([]*Rank, 0, len(r.Ranks))
	for _, number := range slices.Sorted(maps.Keys(r.Ranks)) {
		all = append(all, r.Ranks[number])
	}
	return all
}

// ended reports whether all ranks of the script have measured everything, or will not.
func (r *Record) ended() bool {
	if r.Refused != "" || r.Lost != "" {
		return true
	}
	for _, rank := range r.Ranks {
		all := rank.Loader.Ranks
		if r.Job != nil {
			all = r.Job.Ranks
		}
		if !rank.Ended || len(r.Ranks) < all {
			return false
		}
	}
	return len(r.Ranks) > 0
}
