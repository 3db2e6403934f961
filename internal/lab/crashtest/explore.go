package crashtest

import (
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// most is how many units may be pending for all of their subsets to be tried.
const most = 12

// given replaces the numbers of random states that tests ask for.
var given = flag.Int("crash.states", 0,
	"random states after a crash at each point; 0: as many as each test has by default")

// checkTimeout is how long a check may take.
const checkTimeout = 2 * time.Minute

// Explore calls check with the states that a crash at any point of the recording may leave, each in
// a directory of its own, until one returns an error. With at most 12 units pending it tries all
// subsets of them, each with holes, zeros and former contents where nothing was written; with more,
// all, none, and as many random subsets as given, which the seed determines; the flag -crash.states
// overrides their number. It returns the number of different states, and the error with what the
// crash lost, reduced to what it must have lost.
func (r *Recorder) Explore(random int, seed uint64, check func(path string) error,
) (states int, err error) {
	if *given < 0 {
		return 0, fmt.Errorf("-crash.states: %d; allowed are numbers of at least 0", *given)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Memory is faster, and files in it may have holes.
	parent, err := os.MkdirTemp("/dev/shm", "hdmlp-crash-")
	if err != nil {
		parent, err = os.MkdirTemp("", "hdmlp-crash-")
	}
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(parent) //nolint:errcheck // a temporary directory
	x := &explorer{
		Recorder: r, check: check, parent: parent,
		random: rand.New(rand.NewPCG(seed, 0)),
		seed:   maphash.MakeSeed(), seen: map[uint64]bool{},
	}
	if *given > 0 {
		random = *given
	}
	for point := range r.mu.ops {
		if err := x.crashAfter(point, random); err != nil {
			return len(x.seen), err
		}
	}
	return len(x.seen), nil
}

type explorer struct {
	*Recorder
	check  func(path string) error
	parent string
	random *rand.Rand
	seed   maphash.Seed
	seen   map[uint64]bool // hashes of images
	tried  int
}

// crash is a state after a crash.
type crash struct {
	point int          // the last operation
	lost  map[int]bool // units
	fill  func(*node) filling
}

func (x *explorer) crashAfter(point, random int) error {
	var pending []int
	for i, u := range x.mu.units[:x.mu.ops[point].units] {
		if u.durable > point {
			pending = append(pending, i)
		}
	}
	try := func(loses func(i int) bool, fill func(*node) filling) error {
		c := crash{point, map[int]bool{}, fill}
		for i, unit := range pending {
			if loses(i) {
				c.lost[unit] = true
			}
		}
		return x.try(c)
	}
	fillings := []func(*node) filling{
		func(*node) filling { return holes },
		func(*node) filling { return zeros },
		func(n *node) filling { return x.formerly(point, n) },
	}
	if len(pending) <= most {
		for subset := range 1 << len(pending) {
			for _, fill := range fillings {
				if err := try(func(i int) bool { return subset>>i&1 != 0 }, fill); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, fill := range fillings {
		for _, all := range []bool{true, false} {
			if err := try(func(int) bool { return all }, fill); err != nil {
				return err
			}
		}
	}
	for range random {
		if err := try(x.loses(pending), x.fillings(point)); err != nil {
			return err
		}
	}
	return nil
}

// loses returns a random choice of units: each with the same probability; of each node, with one
// for data, one for sizes and one for entries; of each node, those after a random one; or a single
// one.
func (x *explorer) loses(pending []int) func(i int) bool {
	type group struct {
		node *node
		kind kind
	}
	share := map[group]float64{}
	left := map[*node]int{}
	for _, i := range pending {
		u := x.mu.units[i]
		shares := []float64{0, 0, 0.5, 1}
		if u.kind == entrySet {
			shares = []float64{0, 0, 0, 0.2} // without its entry, nothing of a file matters
		}
		share[group{u.node, u.kind}] = shares[x.random.IntN(4)]
		left[u.node]++
	}
	for _, n := range x.nodes(pending) {
		left[n] = x.random.IntN(left[n] + 1)
	}
	equal := []float64{0.1, 0.5, 0.9}[x.random.IntN(3)]
	single := x.random.IntN(len(pending))
	strategy := x.random.IntN(4)
	return func(i int) bool {
		u := x.mu.units[pending[i]]
		left[u.node]--
		switch strategy {
		case 0:
			return x.random.Float64() < equal
		case 1:
			return x.random.Float64() < share[group{u.node, u.kind}]
		case 2:
			return i == single
		}
		return left[u.node] < 0
	}
}

// nodes returns the nodes of units, in the order in which they occur.
func (x *explorer) nodes(units []int) (nodes []*node) {
	for _, i := range units {
		if n := x.mu.units[i].node; !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// fillings returns a random filling for all files, or for each.
func (x *explorer) fillings(point int) func(*node) filling {
	all := x.random.IntN(3)
	chosen := map[*node]filling{}
	return func(n *node) filling {
		if all == 0 {
			return x.formerly(point, n)
		}
		f, ok := chosen[n]
		if !ok {
			f = filling(x.random.IntN(x.mu.ops[point].freed+2) - 2) // zeros, holes, or freed contents
			chosen[n] = f
		}
		return f
	}
}

// formerly returns what was freed last of a file with the same name, or zeros.
func (x *explorer) formerly(point int, n *node) filling {
	for i := x.mu.ops[point].freed - 1; i >= 0; i-- {
		if x.mu.freed[i].name == n.name {
			return filling(i)
		}
	}
	return zeros
}

// try checks the state, unless an equal one was checked.
func (x *explorer) try(c crash) error {
	m := x.image(c)
	hash := m.hash(x.seed, x.mu.root, c.fill)
	if x.seen[hash] {
		return nil
	}
	x.seen[hash] = true
	if x.checks(c) == nil {
		return nil
	}
	for again := true; again; { // keep what need not be lost
		again = false
		for unit := range c.lost {
			delete(c.lost, unit)
			if x.checks(c) == nil {
				c.lost[unit] = true
			} else {
				again = true
			}
		}
	}
	return fmt.Errorf("%s: %w", x.describe(c), x.checks(c))
}

func (x *explorer) image(c crash) *image {
	m := &image{map[*node]*file{}, map[*node]map[string]*node{}}
	for i, u := range x.mu.units[:x.mu.ops[c.point].units] {
		if !c.lost[i] {
			m.apply(u)
		}
	}
	return m
}

// checks creates the state, and checks it.
func (x *explorer) checks(c crash) error {
	x.tried++
	path := filepath.Join(x.parent, fmt.Sprint(x.tried))
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(path) //nolint:errcheck // a temporary directory
	if err := x.image(c).write(path, x.mu.root, x.mu.freed, c.fill); err != nil {
		return err
	}
	hangs := time.AfterFunc(checkTimeout, func() { panic(x.describe(c) + ": the check hangs") })
	defer hangs.Stop()
	return x.check(path)
}

// describe returns, as text, after which operations the crash occurred, and what it lost.
func (x *explorer) describe(c crash) string {
	var b strings.Builder
	b.WriteString("a crash after\n")
	for _, o := range x.mu.ops[:c.point+1] {
		fmt.Fprintf(&b, "  %s\n", o.text)
	}
	b.WriteString("that lost\n")
	for i, u := range x.mu.units {
		if c.lost[i] {
			fmt.Fprintf(&b, "  %v\n", u)
		}
	}
	m := x.image(c)
	m.walk("", x.mu.root, func(path string, n *node) {
		if n.durable.entries == nil && !m.file(n).complete() {
			fmt.Fprintf(&b, "so that %s shows %s\n", path, x.shows(c.fill(n)))
		}
	})
	return b.String()
}

// shows describes what a file shows where it was never written.
func (x *explorer) shows(f filling) string {
	switch f {
	case holes:
		return "holes"
	case zeros:
		return "zeros"
	}
	return fmt.Sprintf("bytes of the %s that was removed or cut as number %d", x.mu.freed[f].name,
		f+1)
}
