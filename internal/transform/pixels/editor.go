package pixels

// Editor applies those of PIL's operations that need scratch memory, which it keeps between images.
// It is not safe for concurrent use.
type Editor struct {
	between []byte    // between the passes of a blur
	sums    []float32 // between the axes of a convolution
	columns []int32   // the position of each target column in a source row, or offsets of rows
	scratch rowScratch
	kernel  kernel // for tests: a kernel other than the best
}

// Kept returns how many bytes the Editor keeps between images, without small tables.
func (e *Editor) Kept() int64 { return int64(cap(e.between)) + int64(cap(e.sums))*4 }
