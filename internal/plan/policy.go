package plan

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

// About describes a policy to the packages that offer, validate or plot policies; no other package
// has a list of them.
type About struct {
	// what it does, in a few words, for help: "reads each sample once for all nodes"
	Does string
	// the engine supports it; otherwise only the simulator does, with one rank per node
	Engine      bool
	Stages      bool    // the staging buffer is filled ahead of time, so there must be one
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
