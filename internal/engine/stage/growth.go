package stage

// growth decides when a full buffer grows: by one step once per turnover, the time in which all
// batches of a full buffer are taken. More batches in progress are a gain if what is waited for has
// latency, which the next turnover shows at the earliest.
type growth struct {
	// laid is how many batches of the Run were laid out when the present turnover began, which are
	// all taken when it ends; 0: there is none.
	laid int
	due  bool // a full buffer is to grow now: a turnover has ended since it grew last
}

// restart forgets what it counts by batches: another Run begins.
func (g *growth) restart() { g.laid = 0 }

// full records that there is no room for another batch.
func (g *growth) full(taken, laid int) {
	if g.laid == 0 && taken < laid {
		g.laid = laid
	}
}

// took records that the process has taken so many batches.
func (g *growth) took(taken int) {
	if g.laid > 0 && taken >= g.laid {
		g.laid = 0
		g.due = true
	}
}

// grew records that the buffer grew.
func (g *growth) grew() { *g = growth{} }
