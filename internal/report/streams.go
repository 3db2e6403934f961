package report

// Streams are how many reads of the source at the same time a node has found to be best, and how
// many seconds one of them takes it, on average; 0: that is not known.
type Streams struct {
	Number int     `json:"number"`
	Takes  float64 `json:"takes_s"`
}
