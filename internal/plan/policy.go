package plan

import (
	"slices"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// Policy makes plans. Implementations are stateless, comparable and safe for concurrent use.
type Policy interface {
	// Name returns the policy's name in flags, configuration and reports.
	Name() string
	// About returns the policy's properties.
	About() About
	// Plan computes the plan. Its errors are those of an invalid input, Unsupported, and the
	// Context's.
	Plan(in Input) (*Plan, error)
}

// Orderer is a policy under which ranks read in another order than that which was asked for.
type Orderer interface {
	Policy
	// Order returns that order; nil: it is the stream's own. Of the input it uses only what is
	// nominal: the stream, the ranks of the nodes, their configured capacities, and the samples'
	// sizes. It returns an Unsupported if the policy cannot order the stream.
	Order(in Input) (*access.Order, error)
}

// Unlimited is the nominal capacity of a class whose size is not configured.
const Unlimited = 1 << 58

// Ordered returns the input with its stream in the order in which ranks read under the policy. The
// capacities of its nodes must be those that are configured.
func Ordered(p Policy, in Input) (Input, error) {
	o, ok := p.(Orderer)
	if !ok {
		return in, nil
	}
	nominal := in
	nominal.Nodes = slices.Clone(in.Nodes)
	for n := range nominal.Nodes {
		node := &nominal.Nodes[n]
		*node = Node{Ranks: node.Ranks, Capacity: node.Capacity}
	}
	order, err := o.Order(nominal)
	if err == nil && order != nil {
		in.Stream = in.Stream.Reordered(*order)
	}
	return in, err
}

// About describes a policy to the packages that offer, validate or plot policies; no other package
// has a list of them.
type About struct {
	// what it does, in a few words, for help: "reads each sample once for all nodes"
	Does        string
	Engine      bool    // the engine supports it; otherwise only the simulator does
	Stages      bool    // the staging buffer is filled ahead of time, so there must be one
	OnDemand    bool    // some samples are not read before training asks for them
	Needs       Classes // the storage classes that it requires
	Copies      Copies  // how many copies it plans
	CountsReads bool    // plans by what will be read, with a table of it
	Line        Line    // its line in plots
}

// Classes are the storage classes that a policy requires.
type Classes int

const (
	NoClass    Classes = iota // it requires none
	FirstClass                // it keeps samples in class 1
	SomeClass                 // it keeps samples in any class with free capacity
)

// Copies is the most copies of a sample that a policy plans, as far as they fit.
type Copies int

const (
	NoCopies     Copies = iota
	OnePerSample        // each sample on one node
	OwnReads            // each sample on every node that reads it
	// OwnReads where a node's own class 1 is faster than other nodes', otherwise OnePerSample
	OneOrOwnReads
	OnEveryNode // each sample on every node
)

// Line is the line of a policy in plots: its colour, 0xRRGGBB, and whether it is dashed, as for
// policies that are variants of another one.
type Line struct {
	Colour uint32
	Dashed bool
}
