// Package script describes a simulated job: its dataset, order and settings, the launches of its
// ranks, and the faults that befall them. A Script is a value that Generate draws from a seed, and
// that Simpler reduces. It is written as JSON.
//
// The package is independent of HDMLP, and does no I/O.
package script

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Script is a simulated job.
type Script struct {
	Seed    uint64 `json:"seed"` // of the order, of sizes and of chance in the world
	Samples int    `json:"samples"`
	Largest int    `json:"largest"`           // bytes of the largest sample
	Missing []int  `json:"missing,omitempty"` // samples whose files are missing
	// Stale are samples of which nodes with odd numbers see other bytes, of the same size and time.
	// Verify is then set.
	Stale []int `json:"stale,omitempty"`
	// Undecodable are samples that processes cannot decode, which they report. OnError is then
	// "skip" or "substitute".
	Undecodable []int `json:"undecodable,omitempty"`
	// Subset is how many samples the job reads, chosen by chance; 0: all.
	Subset int `json:"subset,omitempty"`
	// Mix is how many samples an epoch has of two datasets, the first third of the samples and the
	// others, of which it takes three parts and two; 0: there is one dataset.
	Mix int `json:"mix,omitempty"`

	Epochs   int  `json:"epochs"`
	Batch    int  `json:"batch"` // samples of a step over all ranks
	DropLast bool `json:"drop_last,omitempty"`
	// Shuffle is as in requests. If it is "given", each rank gives its part of Given before it begins
	// an epoch.
	Shuffle string `json:"shuffle"`
	Scheme  string `json:"scheme"`
	Tail    string `json:"tail"`

	Policy     string `json:"policy"` // "": the default
	OnError    string `json:"on_error"`
	Transforms bool   `json:"transforms,omitempty"`
	Verify     bool   `json:"verify,omitempty"`
	// SourceSlow has the nodes believe that the source is slower than all else, so that each sample
	// is read from it once if the caches hold it.
	SourceSlow bool `json:"source_slow,omitempty"`

	// Plans is how nodes come to their plans; "": at once, for the whole job.
	Plans Plans `json:"plans,omitempty"`
	// Takes is how long each read from the source takes.
	Takes Duration `json:"source_takes,omitempty"`

	Memory   int      `json:"memory"`            // of each node's cache in memory, in bytes
	Disk     int      `json:"disk,omitempty"`    // of each node's cache directory; 0: none
	Uneven   bool     `json:"uneven,omitempty"`  // nodes with odd numbers have half of both
	Staging  int      `json:"staging"`           // of a rank's staging buffer, in bytes
	Prefetch int      `json:"prefetch"`          // batches; 0: the default
	Threads  int      `json:"threads,omitempty"` // that read the source; 0: tuned
	Timeout  Duration `json:"source_timeout"`    // of a read from the source

	Step Duration `json:"step"`           // that a process trains on a batch
	Hold int      `json:"hold,omitempty"` // batches that a process keeps before it returns them
	// Keeps has processes keep these also while they wait, as a list of batches does.
	Keeps bool `json:"keeps,omitempty"`
	// Apart has processes train without waiting for each other.
	Apart bool `json:"apart,omitempty"`
	// Again is how often processes that get an error begin again, all at the batch that failed.
	Again int `json:"again,omitempty"`
	// Singly has each of these begin again by itself, after a time of its own.
	Singly bool `json:"singly,omitempty"`
	// Over has them begin with the batch after it, and Rewind so many batches before it.
	Over   bool `json:"over,omitempty"`
	Rewind int  `json:"rewind,omitempty"`
	// Renews has another process take the place of one of them (Replaced).
	Renews bool `json:"renews,omitempty"`
	// Breaks are where all processes end the iteration and begin another one.
	Breaks []Break `json:"breaks,omitempty"`
	// Lies has the first rank say that it got other samples in the last epoch than it did.
	Lies bool `json:"lies,omitempty"`
	// Twice has a second process open the job as a rank that is in use.
	Twice bool `json:"twice,omitempty"`
	// Differs is what the last rank of the first launch has another value of than the others.
	Differs Setting `json:"differs,omitempty"`
	// Beside is the dataset that a second job with one rank reads on the first node meanwhile.
	Beside Dataset `json:"beside,omitempty"`
	// Members are jobs of one rank on the first node, which share what they prepare. Transforms is
	// then set.
	Members []Member `json:"members,omitempty"`
	// Invalid has a process make requests for jobs that cannot be.
	Invalid bool `json:"invalid,omitempty"`
	TLS     bool `json:"tls,omitempty"` // between nodes

	Launches []Launch `json:"launches"`
	Events   []Event  `json:"events,omitempty"`
}

// Member is a job that reads all samples with batches of its own size, in a group of such jobs.
type Member struct {
	Batch int      `json:"batch"`
	Late  Duration `json:"late,omitempty"` // by how much it starts later than the launch
	Step  Duration `json:"step"`           // that it trains on a batch
	// Rest is the batch after which it does not run for a minute, and Leave that after which it is
	// killed, counted from 1; 0: none.
	Rest  int `json:"rest,omitempty"`
	Leave int `json:"leave,omitempty"`
}

// Alone returns the script of a member's job, as if it were in no group.
func (s *Script) Alone(m Member) *Script {
	alone := &Script{
		Seed: s.Seed, Samples: s.Samples, Largest: s.Largest, Epochs: s.Epochs, Batch: m.Batch,
		Shuffle: s.Shuffle, Scheme: "strided", Tail: "pad", OnError: "raise", Transforms: true,
		Plans:    Meanwhile, // what others prepare may be waited for
		Launches: []Launch{{Nodes: 1, Ranks: 1, Kill: m.Leave}},
	}
	return alone
}

// Shares reports whether other jobs read the dataset on the first node.
func (s *Script) Shares() bool { return s.Beside == Same || len(s.Members) > 0 }

// Break ends an iteration after the batch After, counted over all epochs. The next one begins with
// the batch that follows, or, if Skip is set, with the next epoch, or so many batches back, once.
// If Past is set as well, the next epoch is given up before its first batch.
// If Anew is set, another process takes the place of that of one rank, Script.Replaced.
type Break struct {
	After int  `json:"after"`
	Skip  bool `json:"skip,omitempty"`
	Past  bool `json:"past,omitempty"`
	Back  int  `json:"back,omitempty"`
	Anew  bool `json:"anew,omitempty"`
}

// Next returns the batch with which the next iteration begins, instead of one, in a job with so
// many epochs of so many batches.
func (b Break) Next(instead, epochs, steps int) int {
	switch {
	case b.Back > 0:
		return max(instead-b.Back, 0)
	case b.Skip:
		epoch := (instead + steps - 1) / steps
		if b.Past {
			epoch++
		}
		return min(epoch, epochs) * steps
	}
	return instead
}

// Setting is a setting that all ranks must share.
type Setting string

// Settings that all ranks must share.
const (
	TheBatch  Setting = "batch"
	TheSeed   Setting = "seed"
	TheEpochs Setting = "epochs"
	ThePolicy Setting = "policy"
	TheTail   Setting = "tail"
	TheSecret Setting = "secret"
	TheData   Setting = "dataset"
	// These two differ in the order that ranks give, after the first epoch.
	ThePart  Setting = "part of an epoch" // it has another number of samples
	TheEpoch Setting = "epoch"            // an epoch is left out
	ThePause Setting = "pause"            // it comes to the second one after the others gave it up
	// TheEnd has the rank end after the first epoch; with Apart, when the others are through.
	TheEnd Setting = "end"
)

// Pauses is how long a rank does not train that differs in ThePause, or in TheEnd with Apart: more
// than others wait for it.
const Pauses = 40 * time.Second

// Plans is how nodes come to their plans.
type Plans string

// How nodes come to their plans.
const (
	Meanwhile Plans = "meanwhile" // while batches already flow
	// Batches already flow when the plan of one node, Unplanned, cannot be made.
	Failing Plans = "failing"
)

// Dataset is what a second job reads.
type Dataset string

// Datasets of a second job.
const (
	Same  Dataset = "same"
	Other Dataset = "other"
)

// Launch starts all ranks of the job. The first begins with the first batch, the others where the
// one before ended.
type Launch struct {
	Nodes int `json:"nodes"`
	Ranks int `json:"ranks"` // of each node
	// Late is by how much each rank starts later than the launch; ranks beyond it start at once.
	Late []Duration `json:"late,omitempty"`
	// Kill ends all processes of the launch, and its nodes if Crash is set, when every rank has had
	// so many batches in it; 0: the launch runs to the job's end.
	Kill  int  `json:"kill,omitempty"`
	Crash bool `json:"crash,omitempty"` // what was not yet on disk is lost
	// Restart ends the nodes' daemons after the launch.
	Restart bool `json:"restart,omitempty"`
}

// WorldSize returns the number of ranks.
func (l Launch) WorldSize() int { return l.Nodes * l.Ranks }

// Kind is a kind of fault.
type Kind string

// Kinds of faults. All but Reset, Rot, Die and Change end after Event.For.
const (
	SourceSlow Kind = "source-slow" // reads by a node take Amount milliseconds more
	SourceFail Kind = "source-fail" // Amount per cent of the reads by a node fail
	SourceHang Kind = "source-hang" // reads by a node do not return
	SampleFail Kind = "sample-fail" // every node's reads of one sample fail
	Vanish     Kind = "vanish"      // a sample's file is missing
	Cut        Kind = "cut"         // a node is cut off from all others
	CutWay     Kind = "cut-way"     // what a node sends to another does not arrive
	Partition  Kind = "partition"   // the nodes below Node and the others are cut off from each other
	Delay      Kind = "delay"       // data between two nodes takes Amount milliseconds longer
	Rate       Kind = "rate"        // data between two nodes is limited to Amount kB/s
	Loss       Kind = "loss"        // Amount per cent of the datagrams between two nodes are lost
	Flip       Kind = "flip"        // a bit of Amount per cent of a node's writes to another flips
	Reset      Kind = "reset"       // connections between two nodes break
	DiskFail   Kind = "disk-fail"   // Amount per cent of a node's disk operations fail
	DiskFull   Kind = "disk-full"   // a node's disk is full
	DiskHang   Kind = "disk-hang"   // reads from a node's disk, or writes, by Amount, do not return
	Rot        Kind = "rot"         // Amount bits of what a node's disk holds flip
	Pause      Kind = "pause"       // a process does not run
	Pressure   Kind = "pressure"    // a node's memory is short
	Die        Kind = "die"         // a node's processes and its daemon end; the job is killed later
	Change     Kind = "change"      // a sample's file is written to
)

// The amounts of DiskHang.
const (
	ReadsHang = iota
	WritesHang
	AllHangs
)

// Kinds returns all kinds of faults.
func Kinds() []Kind { return append(general(), Vanish) }

// general returns the kinds of faults that may befall any job.
func general() []Kind {
	return []Kind{
		SourceSlow, SourceFail, SourceHang, SampleFail, Cut, CutWay, Partition, Delay, Rate, Loss,
		Flip, Reset, DiskFail, DiskFull, DiskHang, Rot, Pause, Pressure, Die, Change,
	}
}

// Event is a fault.
type Event struct {
	Kind   Kind     `json:"kind"`
	Launch int      `json:"launch,omitempty"` // during which it happens
	At     Duration `json:"at"`               // since the launch
	For    Duration `json:"for,omitempty"`
	Node   int      `json:"node,omitempty"` // the node, or of Pause the rank; modulo their number
	To     int      `json:"to,omitempty"`   // the other node, counted from Node; or the sample
	Amount int      `json:"amount,omitempty"`
	Of     int      `json:"of,omitempty"` // of how many writes Flip flips a bit of Amount; 0: of 100
}

// Flips returns the share of a node's writes to another of which Flip flips a bit.
func (e Event) Flips() float64 { return float64(e.Amount) / float64(cmp.Or(e.Of, 100)) }

// Calm reports whether the script has no faults, no samples that are missing or that nodes see
// differently, and no plan that cannot be made.
func (s *Script) Calm() bool {
	return len(s.Events)+len(s.Missing)+len(s.Stale) == 0 && s.Plans != Failing
}

// StepsOver reports whether processes begin again after the batch that could not be had, and not
// with it.
func (s *Script) StepsOver() bool {
	return s.Over || len(s.Missing) > 0 && s.Seed%2 == 0 && s.Rewind == 0
}

// ShortDelay is the most milliseconds by which Delay leaves news on time.
const ShortDelay = 100

// Replaces reports whether other processes take the place of some.
func (s *Script) Replaces() bool {
	return s.Renews || slices.ContainsFunc(s.Breaks, func(b Break) bool { return b.Anew })
}

// Replaced returns the rank whose process another one replaces in a launch.
func (s *Script) Replaced(l Launch) int { return int(s.Seed % uint64(l.WorldSize())) }

// Unplanned returns the node whose plan cannot be made; -1: all can.
func (s *Script) Unplanned() int {
	if s.Plans != Failing {
		return -1
	}
	return int(s.Seed % uint64(s.Launches[0].Nodes))
}

// Loses reports whether nothing goes wrong but that nodes die.
func (s *Script) Loses() bool {
	return len(s.Missing)+len(s.Stale) == 0 && len(s.Events) > 0 &&
		!slices.ContainsFunc(s.Events, func(e Event) bool { return e.Kind != Die })
}

// Dies reports whether a node dies in a launch.
func (s *Script) Dies(launch, node int) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		return e.Kind == Die && e.Launch == launch && e.Node%s.Launches[launch].Nodes == node
	})
}

// Has reports whether the script has a fault of one of these kinds.
func (s *Script) Has(kinds ...Kind) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return slices.Contains(kinds, e.Kind) })
}

// Duration is a time.Duration that is written as text.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is no time; allowed are such as "5s" and "20ms"`, text)
	}
	*d = Duration(v)
	return nil
}

// D returns the time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String returns the script as JSON.
func (s Script) String() string {
	text, err := json.Marshal(s)
	if err != nil { // it has only numbers, texts and lists of them
		panic(err)
	}
	return string(text)
}

// Parse reads a script that String wrote, and checks that it can be run.
func Parse(text string) (s Script, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("read a script, which is JSON, near byte %d: %w", d.InputOffset(), err)
	}
	if rest := strings.TrimSpace(text[d.InputOffset():]); rest != "" {
		return s, fmt.Errorf("read a script: %q follows it", rest)
	}
	return s, s.Check()
}
