package devcluster

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"sync"
)

// longestLine is the length at which a line is split.
const longestLine = 64 << 10

// output writes what many processes print: whole lines, one at a time, each with a prefix that
// names its process.
type output struct {
	colour bool
	mu     sync.Mutex // held while a line is written, to any writer
}

// copy copies the lines of one process until its output ends. If a writer fails, lines are lost,
// but the process is not blocked.
func (o *output) copy(to io.Writer, from io.Reader, node, rank int) {
	prefix := fmt.Sprintf("[%d.%d] ", node, rank)
	if o.colour {
		prefix = fmt.Sprintf("\x1b[%dm[%d.%d]\x1b[0m ", 31+node%6, node, rank)
	}
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 4096), longestLine)
	lines.Split(splitLines())
	for lines.Scan() {
		line := append(append([]byte(prefix), lines.Bytes()...), '\n')
		o.mu.Lock()
		_, _ = to.Write(line)
		o.mu.Unlock()
	}
}

// splitLines returns a split function for lines. A carriage return also ends a line, because
// progress bars print one for each update, and would overwrite other processes' lines.
func splitLines() bufio.SplitFunc {
	returned := false // the last byte was a carriage return: a line feed now belongs to it
	return func(data []byte, atEOF bool) (int, []byte, error) {
		if returned && len(data) > 0 && data[0] == '\n' {
			returned = false
			return 1, nil, nil
		}
		end := bytes.IndexAny(data, "\r\n")
		switch {
		case end == 0 && data[0] == '\r': // at the beginning of a line it is ignored
			returned = false
			return 1, nil, nil
		case end >= 0:
			returned = data[end] == '\r'
			return end + 1, data[:end], nil
		case len(data) >= longestLine || atEOF && len(data) > 0:
			returned = false
			return len(data), data, nil
		}
		return 0, nil, nil
	}
}
