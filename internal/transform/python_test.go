package transform

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// python is PIL and torchvision: a process that runs testdata/conformance.py, which describes
// requests and answers.
type python struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

type answer struct {
	Bytes int    `json:"bytes"`
	Shape []int  `json:"shape"`
	Dtype string `json:"dtype"`
	Error string `json:"error"`
	data  []byte
}

// process is the one python of all tests: it imports torchvision, which takes seconds.
var process struct {
	sync.Once
	python
	cmd  *exec.Cmd
	stop io.Closer
	skip error // there is no torchvision
	err  error
}

// startPython returns python, started by the first test that needs it.
func startPython(t *testing.T) *python {
	t.Helper()
	process.Do(func() {
		const (
			interpreter = "/usr/bin/python3"
			find        = `import importlib.util as u, sys; sys.exit(not u.find_spec("torchvision"))`
		)
		if process.skip = exec.Command(interpreter, "-c", find).Run(); process.skip != nil {
			return
		}
		cmd := exec.Command(interpreter, "testdata/conformance.py")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			process.err = err
			return
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			process.err = err
			return
		}
		process.python = python{in: in, out: bufio.NewReader(out)}
		process.cmd, process.stop = cmd, in
		process.err = cmd.Start()
	})
	if process.skip != nil {
		t.Skip("no torchvision to compare with: ", process.skip)
	}
	if process.err != nil {
		t.Fatal(process.err)
	}
	return &python{t, process.in, process.out}
}

// fewer returns n, or a tenth with -short and in builds without cgo: what draws numbers is Go's
// code in both.
func fewer(n int) int {
	if exactJPEG && !testing.Short() {
		return n
	}
	return n / 10
}

func TestMain(m *testing.M) {
	code := m.Run()
	if process.cmd != nil && process.err == nil {
		_ = process.stop.Close()
		if err := process.cmd.Wait(); err != nil {
			fmt.Fprintln(os.Stderr, "python:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func (p *python) ask(request any) answer {
	p.t.Helper()
	line, err := json.Marshal(request)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
	head, err := p.out.ReadBytes('\n')
	if err != nil {
		p.t.Fatal("python's answer: ", err)
	}
	var a answer
	if err := json.Unmarshal(head, &a); err != nil {
		p.t.Fatal(err)
	}
	a.data = make([]byte, a.Bytes)
	if _, err := io.ReadFull(p.out, a.data); err != nil {
		p.t.Fatal(err)
	}
	return a
}

// testImage is an image as testdata/conformance.py makes it.
type testImage struct {
	Seed   int            `json:"seed"`
	Width  int            `json:"width"`
	Height int            `json:"height"`
	Mode   string         `json:"mode"`
	Save   map[string]any `json:"save"`
}

func (i testImage) String() string {
	words := []string{fmt.Sprintf("%dx%d", i.Width, i.Height), i.Mode}
	for _, key := range []string{"format", "quality", "subsampling", "progressive", "orientation"} {
		if v, ok := i.Save[key]; ok {
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, "-")
}

func png(width, height int, mode string) testImage {
	return testImage{width*31 + height, width, height, mode, map[string]any{"format": "PNG"}}
}

func jpeg(width, height int, mode string, quality, subsampling int, more ...any) testImage {
	save := map[string]any{"format": "JPEG", "quality": quality}
	if mode == "RGB" {
		save["subsampling"] = subsampling
	}
	for i := 0; i < len(more); i += 2 {
		save[more[i].(string)] = more[i+1]
	}
	return testImage{width*31 + height + quality, width, height, mode, save}
}

// What transforms are tried on: PNGs to compare the transforms alone, and JPEGs of all kinds.
var testImages = []testImage{
	png(500, 375, "RGB"), png(375, 500, "RGB"), png(224, 224, "RGB"), png(301, 97, "RGB"),
	png(40, 33, "RGB"), png(13, 700, "RGB"),
	png(3, 2, "RGB"), png(1, 1, "RGB"), png(120, 90, "L"),
	jpeg(500, 375, "RGB", 90, 2), jpeg(333, 500, "RGB", 75, 1), jpeg(257, 255, "RGB", 95, 0),
	jpeg(640, 481, "RGB", 40, 2, "progressive", true),
	jpeg(319, 243, "L", 85, 0), jpeg(130, 200, "CMYK", 90, 0),
	jpeg(301, 200, "RGB", 90, 2, "orientation", 6),
}
