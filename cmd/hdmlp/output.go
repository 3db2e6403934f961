package main

import (
	"io"
	"os"
)

// output is the standard output. It keeps the first error of a write, because many commands print
// with fmt.Fprintf and do not look at its result.
type output struct {
	file *os.File
	err  error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// fileOf returns the file behind an output, for what needs a file: terminals, and programs that are
// started. It returns any other writer as it is.
func fileOf(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.file
	}
	return w
}
