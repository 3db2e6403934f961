package main

import (
	"io"
	"os"
	"regexp"
	"unicode/utf8"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// output is the standard output. It keeps the first error of a write, because many commands print
// with fmt.Fprintf and do not look at its result. It escapes what a terminal acts on, but for
// colours where they are shown: commands escape names themselves, and this is what holds if one
// does not.
type output struct {
	file   *os.File
	colour bool
	part   []byte // the first bytes of a character whose others are still to come
	err    error
}

func newOutput(file *os.File) *output {
	_, colour := terminal(file)
	return &output{file: file, colour: colour}
}

// Write reports all of p as written if no error occurred.
func (o *output) Write(p []byte) (int, error) {
	text := append(o.part, p...)
	whole := len(text) - unfinished(text)
	o.part = append([]byte(nil), text[whole:]...)
	if err := o.print(string(text[:whole])); err != nil {
		return 0, err
	}
	return len(p), nil
}

// end writes what is left, and returns the first error of all writes.
func (o *output) end() error {
	if len(o.part) > 0 {
		_ = o.print(string(o.part)) // it is kept
	}
	return o.err
}

// colours are the sequences that commands print to a terminal: bold, faint, a colour, and none.
var colours = regexp.MustCompile("\x1b\\[[0-9]+m")

func (o *output) print(text string) error {
	start := 0
	if o.colour {
		for _, at := range colours.FindAllStringIndex(text, -1) {
			o.write(human.Text(text[start:at[0]]))
			o.write(text[at[0]:at[1]])
			start = at[1]
		}
	}
	o.write(human.Text(text[start:]))
	return o.err
}

// write keeps the first error, after which it writes no more.
func (o *output) write(text string) {
	if o.err == nil && text != "" {
		_, o.err = io.WriteString(o.file, text)
	}
}

// unfinished returns the number of bytes at the end of text that begin a character of UTF-8.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// fileOf returns the file behind an output, for what needs a file: terminals, and programs that are
// started. It returns any other writer as it is.
func fileOf(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.file
	}
	return w
}
