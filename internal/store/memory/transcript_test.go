package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/hdmlp/hdmlp/internal/store"
)

// user is a tenant in a transcript.
type user struct {
	name string
	out  *strings.Builder
	told map[uint32][2]func() // settled and gone, by segment
}

func (u *user) Vacate(segment uint32, samples []int32, settled, gone func()) {
	fmt.Fprintf(u.out, "%s: segment %d goes, with samples %v\n", u.name, segment, samples)
	if u.told[segment] = [2]func(){settled, gone}; strings.HasPrefix(u.name, "quick") {
		settled()
		gone()
	}
}

func (u *user) Refill()              { fmt.Fprintf(u.out, "%s: there is room again\n", u.name) }
func (u *user) Delay() time.Duration { return 0 }

// Rank ranks samples by ID; those from 100 on are not wanted.
func (u *user) Rank() func(id int32) float64 {
	return func(id int32) float64 {
		if id >= 100 {
			return 2
		}
		return float64(id) / 100
	}
}

// TestSegmentTranscript runs the transcripts in testdata/segments: a class whose segments have room
// for four samples each, of 1024 bytes.
//
//	open ROOM           opens the store with room for so many samples
//	close               closes it
//	join NAME           NAME becomes a tenant, which settles at once if its name begins with quick
//	leave NAME          and no longer is one
//	put ID...           adds samples
//	begin ID            begins to fill a sample
//	finish ID           and finishes
//	drop ID...          drops samples
//	view ID             takes a view of a sample
//	release ID          releases it
//	give SEGMENT        gives a segment back
//	give-back SAMPLES   gives back memory of so many samples, the least useful first
//	allow SAMPLES       allows the class to allocate memory for so many more samples
//	settle NAME SEGMENT NAME has settled
//	gone NAME SEGMENT   NAME's processes do not map the segment any more
//	look                prints all segments
//	held                prints the samples that are held
func TestSegmentTranscript(t *testing.T) {
	datadriven.Walk(t, "testdata/segments", func(t *testing.T, path string) {
		x := newTranscript()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			x.out.Reset()
			for line := range strings.Lines(d.Input) {
				x.run(t, d, strings.Fields(line))
			}
			return x.out.String()
		})
	})
}

type transcript struct {
	out    strings.Builder
	class  *Class
	s      *classStore
	users  map[string]*user
	leaves map[string]func()
	views  map[int]store.View
	fills  map[int]chan struct{}
	filled map[int]chan error
	all    []*segment // ever seen
}

func newTranscript() *transcript {
	return &transcript{
		class: New(Options{Segment: 4096}), users: map[string]*user{},
		leaves: map[string]func(){}, views: map[int]store.View{},
		fills: map[int]chan struct{}{}, filled: map[int]chan error{},
	}
}

func (x *transcript) run(t *testing.T, d *datadriven.TestData, words []string) {
	t.Helper()
	var numbers []int
	for _, w := range words[1:] {
		if n, err := strconv.Atoi(w); err == nil {
			numbers = append(numbers, n)
		}
	}
	switch words[0] {
	case "open":
		opened, err := x.class.Open(store.Dataset{
			Samples: 200,
			Size:    func(int) int64 { return 1024 },
		}, int64(numbers[0])*1024)
		if err != nil {
			t.Fatal(err)
		}
		x.s = opened.(*classStore)
	case "close":
		fmt.Fprintf(&x.out, "closed: %v\n", x.s.Close())
	case "join":
		u := &user{words[1], &x.out, map[uint32][2]func(){}}
		x.users[words[1]], x.leaves[words[1]] = u, x.s.Join(u)
	case "leave":
		x.leaves[words[1]]()
	case "put":
		for _, id := range numbers {
			if err := x.s.Put(id, make([]byte, 1024), store.Origin{}); err != nil {
				fmt.Fprintf(&x.out, "sample %d: %v\n", id, err)
			}
		}
	case "begin":
		x.begin(numbers[0])
	case "finish":
		close(x.fills[numbers[0]])
		fmt.Fprintf(&x.out, "sample %d: %v\n", numbers[0], <-x.filled[numbers[0]])
	case "drop":
		for _, id := range numbers {
			x.s.Drop(id)
		}
	case "view":
		v, ok := x.s.View(numbers[0])
		if ok {
			x.views[numbers[0]] = v
			fmt.Fprintf(&x.out, "in segment %d at %d\n", v.At.Segment, v.At.Offset)
		} else {
			fmt.Fprintln(&x.out, "not held")
		}
	case "release":
		x.views[numbers[0]].Release()
	case "give":
		fmt.Fprintln(&x.out, x.s.GiveBack(uint32(numbers[0]), "a transcript"))
	case "give-back":
		begun := x.class.GiveBack(int64(numbers[0])*1024, "a transcript")
		fmt.Fprintf(&x.out, "%d samples' memory\n", begun/1024)
	case "allow":
		x.class.Allow(int64(numbers[0]) * 1024)
	case "settle":
		x.users[words[1]].told[uint32(numbers[0])][0]()
	case "gone":
		x.users[words[1]].told[uint32(numbers[0])][1]()
	case "look":
		x.look()
	case "held":
		fmt.Fprintln(&x.out, "held, oldest first:", x.s.Held())
	default:
		d.Fatalf(t, "unknown: %v", words)
	}
	x.see()
}

// begin begins to fill a sample, and returns once its bytes are reserved.
func (x *transcript) begin(id int) {
	x.fills[id], x.filled[id] = make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() { // ends with finish
		x.filled[id] <- x.s.Fill(id, func([]byte) (store.Origin, error) {
			close(begun)
			<-x.fills[id]
			return store.Origin{}, nil
		})
	}()
	<-begun
}

// see remembers segments, so that look can print what has become of them.
func (x *transcript) see() {
	for _, g := range x.s.segments.Load().list {
		if g != nil && !slices.Contains(x.all, g) {
			x.all = append(x.all, g)
		}
	}
}

func (x *transcript) look() {
	held := map[uint32][]int{}
	for id := range x.s.where {
		if at, ok := x.s.Locate(id); ok {
			held[at.Segment] = append(held[at.Segment], id)
		}
	}
	for _, g := range x.all {
		x.s.mu.Lock()
		state, mapped := g.state, x.s.segments.Load().of(g.number) == g
		x.s.mu.Unlock()
		fmt.Fprintf(&x.out, "segment %d: %v, mapped %v, %d uses, samples %v\n", g.number, state,
			mapped, g.uses.Load(), held[g.number])
	}
	total, used := x.s.Capacity()
	fmt.Fprintf(&x.out, "%d of %d in use, %d taken", used/1024, total/1024, x.class.Taken()/1024)
	if r := x.s.Returned(); r.Segments > 0 {
		fmt.Fprintf(&x.out, "; gave back %d in %d segments, %d still used", r.Bytes/1024,
			r.Segments, r.Used/1024)
	}
	fmt.Fprintln(&x.out)
}
