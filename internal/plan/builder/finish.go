package builder

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hdmlp/hdmlp/internal/plan"
	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Finish returns the plan and ends the use of the builder. Each class is filled in the order in
// which its samples are first needed (thesis 3.2.2, rule 1): by the node itself or, if shared and
// the node is the sample's owner, by any node. Samples that are already held come first, those that
// are never needed last, by ID.
//
// The copies have the epoch in which they are first needed. So counting gives every epoch's section
// of every class, and the epochs can be processed in parallel, each once, and only those in which
// something is first needed. In addition to the plan this takes 5 bytes per copy and, per core, an
// epoch's order and a bit per sample.
func (b *Builder) Finish(policy string, remote, shared bool) *plan.Plan {
	b.lookUp(shared)
	s := newSections(b)
	var unread bool
	for i := range b.copies {
		switch c := &b.copies[i]; {
		case c.class == noClass:
		case c.first == held:
			s.place(c)
		case c.first == never:
			unread = true
		default:
			s.needed[c.first] = append(s.needed[c.first], c.k)
		}
	}
	for k := 0; k < len(b.head) && unread; k++ {
		for at := b.head[k]; at >= 0; at = b.copies[at].next {
			if c := &b.copies[at]; c.first == never {
				s.place(c)
			}
		}
	}

	done := make([]bool, len(b.copies)) // for epochs that repeat samples
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(len(s.needed), runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			var epoch *access.Epoch
			wanted := make([]uint64, (len(b.head)+63)/64)
			for e := int(next.Add(1)) - 1; e < len(s.needed); e = int(next.Add(1)) - 1 {
				left := len(s.needed[e])
				if left == 0 || b.in.Ended() != nil {
					continue
				}
				clear(wanted)
				for _, k := range s.needed[e] {
					wanted[k/64] |= 1 << (k % 64)
				}
				epoch = b.in.Stream.EpochInto(epoch, b.in.From+e)
				for ids, nodes := range b.steps(epoch) {
					for i, k := range ids {
						if wanted[k/64]>>(k%64)&1 == 0 {
							continue
						}
						for at := b.head[k]; at >= 0; at = b.copies[at].next {
							if c := &b.copies[at]; int(c.first) == e &&
								b.serves(c, nodes, i, shared) && !done[at] {
								done[at] = true
								s.place(c)
								left--
							}
						}
					}
					if left == 0 {
						break
					}
				}
			}
		})
	}
	all.Wait()

	p := b.emptyPlan(policy, remote)
	for n := range p.Nodes {
		copy(p.Nodes[n].Classes, s.lists[s.class[n]:])
	}
	return p
}

// FinishInOrder is Finish for a policy that added each node's copies in the order in which its
// classes are to be filled.
func (b *Builder) FinishInOrder(policy string, remote bool) *plan.Plan {
	p := b.emptyPlan(policy, remote)
	count := make([][]int, len(p.Nodes))
	for n := range count {
		count[n] = make([]int, len(p.Nodes[n].Classes))
	}
	for i := range b.copies {
		count[b.copies[i].node][b.copies[i].class]++
	}
	for n, classes := range count {
		for j, ids := range classes {
			p.Nodes[n].Classes[j] = slices.Grow(p.Nodes[n].Classes[j], ids)
		}
	}
	for i := range b.copies {
		c := &b.copies[i]
		class := &p.Nodes[c.node].Classes[c.class]
		*class = append(*class, c.k)
	}
	return p
}

func (b *Builder) emptyPlan(policy string, remote bool) *plan.Plan {
	p := &plan.Plan{
		Policy:   policy,
		Prefetch: true,
		Remote:   remote,
		Nodes:    make([]plan.NodePlan, len(b.in.Nodes)),
	}
	for n := range p.Nodes {
		p.Nodes[n].Classes = make([][]int32, len(b.in.Nodes[n].Capacity))
	}
	if remote {
		p.Owner = b.owner
	}
	return p
}

// serves reports whether a copy serves read i of a step.
func (b *Builder) serves(c *copyOf, nodes []uint16, i int, shared bool) bool {
	return nodes == nil || c.node == nodes[i] || shared && b.owner[c.k] == int32(c.node)
}

// lookUp determines the first epoch of the copies for which the policy did not set it.
func (b *Builder) lookUp(shared bool) {
	left := 0
	for i := range b.copies {
		if c := &b.copies[i]; c.first == unknown && c.class != noClass {
			left++
		}
	}
	var epoch *access.Epoch
	for e := 0; e < b.to-b.in.From && left > 0 && b.in.Ended() == nil; e++ {
		epoch = b.in.Stream.EpochInto(epoch, b.in.From+e)
		for ids, nodes := range b.steps(epoch) {
			for i, k := range ids {
				for at := b.head[k]; at >= 0; at = b.copies[at].next {
					if c := &b.copies[at]; c.first == unknown && b.serves(c, nodes, i, shared) {
						c.first = int32(e)
						left--
					}
				}
			}
			if left == 0 {
				break
			}
		}
	}
	for i := range b.copies {
		if c := &b.copies[i]; c.first == unknown {
			c.first = never
		}
	}
}

// sections are the parts of each class's list: what it already holds, what is first needed in each
// epoch, what is never needed.
type sections struct {
	class  []int     // per node, the number of its first class
	lists  [][]int32 // per class
	next   [][]int32 // per section and class, the index of the section's next sample in the list
	needed [][]int32 // per epoch, with capacity for the samples whose copies are first needed in it
}

func newSections(b *Builder) *sections {
	epochs := 0
	for i := range b.copies {
		epochs = max(epochs, int(b.copies[i].first)+1)
	}
	s := &sections{next: make([][]int32, epochs+2), needed: make([][]int32, epochs)}
	classes := 0
	for _, node := range b.in.Nodes {
		s.class = append(s.class, classes)
		classes += len(node.Capacity)
	}
	for i := range s.next {
		s.next[i] = make([]int32, classes)
	}
	for i := range b.copies {
		if c := &b.copies[i]; c.class != noClass {
			(*s.of(c))++
		}
	}
	s.lists = make([][]int32, classes)
	for i := range s.lists {
		var n int32
		for _, section := range s.next {
			n, section[i] = n+section[i], n
		}
		if n > 0 {
			s.lists[i] = make([]int32, n)
		}
	}
	return s
}

// of returns the index of the next sample of the copy's section.
func (s *sections) of(c *copyOf) *int32 {
	section := int(c.first) + 1
	switch c.first {
	case held:
		section = 0
	case never:
		section = len(s.next) - 1
	}
	return &s.next[section][s.class[c.node]+int(c.class)]
}

// place appends the copy to its section of its class's list.
func (s *sections) place(c *copyOf) {
	at := s.of(c)
	s.lists[s.class[c.node]+int(c.class)][*at] = c.k
	*at++
}
