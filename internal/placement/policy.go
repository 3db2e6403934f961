package placement

// Policy makes plans. It holds no state, is comparable, and is safe for concurrent use.
type Policy interface {
	// Name is what flags, configuration and reports call it.
	Name() string
	// About says what there is to know of it without a plan.
	About() About
	// Plan computes the plan. It fails only for an invalid input, for one that the policy cannot
	// run (Unsupported), or with the Context's error.
	Plan(in Input) (*Plan, error)
}

// About describes a policy to whoever offers, checks or draws policies: no other room has a list of
// them.
type About struct {
	// what it does, in a few words, for help: "reads each sample once for all nodes"
	Does string
	// the engine runs it; otherwise the simulator alone, and its stream has one rank per node
	Engine      bool
	Stages      bool    // the staging buffer is filled ahead of time, so there must be one
	Needs       Classes // the storage classes that it cannot do without
	Copies      Copies  // how many copies it plans
	CountsReads bool    // planning makes a table of who reads what when
	Line        Line    // how plots draw it
}

// Classes are storage classes that a policy cannot do without.
type Classes int

const (
	NoClass    Classes = iota // it runs without any
	FirstClass                // it keeps samples in class 1
	SomeClass                 // it keeps samples in whichever classes have room
)

// Copies is how many copies of samples a policy plans at most, as far as there is room.
type Copies int

const (
	NoCopies     Copies = iota
	OnePerSample        // each sample on one node
	OwnReads            // each sample on every node that reads it
	// OwnReads where a node's own class 1 is faster than other nodes', otherwise OnePerSample
	OneOrOwnReads
	OnEveryNode // each sample on every node
)

// Line is the line of a policy in plots: its colour, 0xRRGGBB, and whether it is dashed, for
// policies that are variants of another one.
type Line struct {
	Colour uint32
	Dashed bool
}
