package pixels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"
)

// pillow is a process that runs testdata/operations.py.
type pillow struct {
	t   *testing.T
	in  *bufio.Writer
	out *bufio.Reader
}

type pillowAnswer struct {
	Width, Height int
	Mode, Error   string
	Microseconds  float64
	pix           []byte
}

// pillows are the Pythons that tests are held against: Debian's, and that of the newest releases if
// it is installed.
var pillows = []string{"/usr/bin/python3", "../../../build/frameworks/bin/python"}

func startPillow(t *testing.T, python string) *pillow {
	const find = `import importlib.util as u, sys; sys.exit(not u.find_spec("torchvision"))`
	if err := exec.Command(python, "-c", find).Run(); err != nil {
		t.Skipf("%s has no torchvision: %v", python, err)
	}
	read(t, "testdata", "operations.py") // or a change of the script leaves the test cached
	cmd := exec.Command(python, "testdata/operations.py")
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Error("python: ", err)
		}
	})
	p := &pillow{t, bufio.NewWriterSize(in, 1<<16), bufio.NewReaderSize(out, 1<<20)}
	versions, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Log(versions)
	return p
}

func modeOf(m *Image) string {
	if m.Channels == 1 {
		return "L"
	}
	return "RGB"
}

// ask sends an image without padding and the operations on it.
func (p *pillow) ask(m *Image, list []operation, timed bool) {
	p.t.Helper()
	requests := make([][]any, len(list))
	for i, o := range list {
		requests[i] = append([]any{o.name}, o.args...)
	}
	line, err := json.Marshal(map[string]any{
		"width": m.Width, "height": m.Height, "mode": modeOf(m), "operations": requests,
		"time": timed,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	_, _ = p.in.Write(append(line, '\n'))
	_, _ = p.in.Write(m.Pix)
	if err := p.in.Flush(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pillow) answer() (a pillowAnswer) {
	p.t.Helper()
	line, err := p.out.ReadSlice('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		p.t.Fatal(err)
	}
	a.pix = make([]byte, a.Width*a.Height*len(a.Mode))
	if _, err := io.ReadFull(p.out, a.pix); err != nil {
		p.t.Fatal(err)
	}
	return a
}

// picture returns an image of one of several kinds: noise, a gradient, few levels, one colour, a
// narrow range of levels, or extremes.
func picture(r *rand.Rand, width, height, channels int) Image {
	var m Image
	m.Reset(width, height, channels)
	kind := r.IntN(6)
	base := r.IntN(256)
	slope := 1 + r.IntN(9)
	for i := range m.Pix {
		x, y := i/channels%width, i/channels/width
		noise := int(r.Uint32() & 255)
		v := noise
		switch kind {
		case 1:
			v = (x*slope+y*2)/3 + noise&7 + 40*(i%channels)
		case 2:
			v = base + noise&1*20
		case 3:
			v = base + 31*(i%channels)
		case 4:
			v = base/2 + noise&31
		case 5:
			v = -(noise & 1)
		}
		m.Pix[i] = byte(v)
	}
	return m
}

// differ returns a description of what differs in a result, if anything does.
func differ(got *Image, want *pillowAnswer, levels int) string {
	if got.Width != want.Width || got.Height != want.Height || modeOf(got) != want.Mode {
		return fmt.Sprintf("%dx%d of %d channels, and PIL has %dx%d %s", got.Width, got.Height,
			got.Channels, want.Width, want.Height, want.Mode)
	}
	if bytes.Equal(got.Pix, want.pix) {
		return ""
	}
	if d := most(got.Pix, want.pix); d > levels {
		for i := range got.Pix {
			if got.Pix[i] != want.pix[i] {
				return fmt.Sprintf("%d of %d samples differ, by up to %d; number %d is %d, and PIL's %d",
					count(got.Pix, want.pix), len(got.Pix), d, i, got.Pix[i], want.pix[i])
			}
		}
	}
	return ""
}

// refused reports whether this release of PIL or torchvision has good reason not to take it.
func refused(o *operation, m *Image) bool {
	switch o.name {
	case "posterize":
		return o.args[0] == 0 // from Pillow 13 on
	case "blur":
		return o.args[0] != o.args[1] // before Pillow 10
	case "convolve_v2":
		return true // before torchvision 0.15
	}
	return false
}

// TestOperationsAsPIL: every operation gives PIL's bytes, in C at every level and in Go.
// HDMLP_CONFORMANCE is another number of images and of arguments of each operation, "1000x200", for
// the best level only: TestOperationsTwins compares the others with it.
func TestOperationsAsPIL(t *testing.T) {
	images := 60
	arguments := 20
	all := kernels()
	if text := os.Getenv("HDMLP_CONFORMANCE"); text != "" {
		if _, err := fmt.Sscanf(text, "%dx%d", &images, &arguments); err != nil {
			t.Fatalf("HDMLP_CONFORMANCE=%s: %v", text, err)
		}
		all = all[len(all)-1:]
	}
	if sanitized || testing.Short() || len(all) == 1 && os.Getenv("HDMLP_CONFORMANCE") == "" {
		images = 8 // without cgo Go's code is that which is tried on all of them with it
	}
	for _, python := range pillows {
		t.Run(python, func(t *testing.T) {
			operationsAsPIL(t, python, images, arguments, all)
		})
	}
}

// The sizes of images that the operations are tried on; others are random.
var pictureSizes = [][2]int{
	{1, 1},
	{1, 7},
	{9, 1},
	{2, 2},
	{3, 3},
	{2, 33},
	{35, 2},
	{31, 29},
	{64, 64},
	{33, 65},
	{224, 224},
	{500, 375},
	{21, 130},
	{130, 22},
	{100, 100},
	{17, 300},
	{257, 40},
	{12, 5},
}

func operationsAsPIL(t *testing.T, python string, images, arguments int, all []kernel) {
	p := startPillow(t, python)
	r := rand.New(rand.NewPCG(39, 1))
	compared := 0
	touched := map[string][2]int{} // samples that differ, of all, where a level may
	for i := range images {
		size := [2]int{1 + r.IntN(90), 1 + r.IntN(90)}
		if i < 2*len(pictureSizes) {
			size = pictureSizes[i/2]
		}
		m := picture(r, size[0], size[1], 3-i%2*2)
		n := numbers{r, arguments}
		if size[0]*size[1] > 20000 {
			n.n = min(n.n, 20)
		}
		list := n.operations(size[0], size[1])
		if size[0]*size[1] > 20000 {
			n.n = 4
		}
		list = append(list, n.convolutions()...)
		p.ask(&m, list, false)
		for _, o := range list {
			want := p.answer()
			for _, k := range all {
				e := Editor{kernel: k}
				var got Image
				err := o.run(&e, &got, &m)
				if want.Error != "" {
					if err == nil && !refused(&o, &m) {
						t.Errorf("%dx%d %s%v: %s", m.Width, m.Height, o.name, o.args, want.Error)
					}
					continue
				}
				if err != nil {
					t.Errorf("%dx%d %s%v: %v", m.Width, m.Height, o.name, o.args, err)
					continue
				}
				if d := differ(&got, &want, o.levels); d != "" {
					t.Errorf("kernel %d, image %d, %dx%d %s %s%v: %s", k, i, m.Width, m.Height,
						modeOf(&m), o.name, o.args, d)
				}
				if o.levels > 0 && k == all[0] {
					n := touched[o.name]
					touched[o.name] = [2]int{n[0] + count(got.Pix, want.pix), n[1] + len(got.Pix)}
				}
				compared++
			}
		}
	}
	t.Logf("%d results; differing by a level: %v", compared, touched)
}

// TestOperationsTwins: C at every level gives the bytes of Go, on parts of larger images.
func TestOperationsTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(39, 2))
	images := 60
	if sanitized || testing.Short() {
		images = 12
	}
	for range images {
		whole := picture(r, 1+r.IntN(120), 1+r.IntN(120), 1+2*r.IntN(2))
		part := whole.Bounds()
		part.Min.X = r.IntN(part.Max.X)
		part.Min.Y = r.IntN(part.Max.Y)
		m := whole.Sub(part)
		n := numbers{r, 12}
		for _, o := range append(n.operations(m.Width, m.Height), n.convolutions()...) {
			var reference Image
			for _, k := range kernels() {
				e := Editor{kernel: k}
				var got Image
				if err := o.run(&e, &got, &m); err != nil {
					continue
				}
				if k == inGo {
					reference = got
				} else if !bytes.Equal(got.Pix, reference.Pix) {
					t.Errorf("kernel %d, %dx%dx%d, %s%v: %d samples differ from Go's, by up to %d",
						k, m.Width, m.Height, m.Channels, o.name, o.args,
						count(got.Pix, reference.Pix), most(got.Pix, reference.Pix))
				}
			}
		}
	}
}

// TestOperationTimes prints the best times of operations beside those of the newest Pillow, in us:
// Pillow's, Go's, and those of C at each level. HDMLP_TIMES asks for it: the image's edges,
// "224x224".
func TestOperationTimes(t *testing.T) {
	text := os.Getenv("HDMLP_TIMES")
	if text == "" {
		t.Skip("HDMLP_TIMES is not set")
	}
	var width, height int
	if _, err := fmt.Sscanf(text, "%dx%d", &width, &height); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(39, 3))
	m := noise(width, height, 3)
	for i := range m.Pix {
		m.Pix[i] = m.Pix[i]/4 + byte(i/3%width/2)
	}
	list := timedOperations(r, width, height)
	for _, python := range pillows[1:] {
		p := startPillow(t, python)
		p.ask(&m, list, true)
		for _, o := range list {
			line := fmt.Sprintf("%-14s %-30.30s %8.0f", o.name, fmt.Sprint(o.args),
				p.answer().Microseconds)
			for _, k := range kernels() {
				e := Editor{kernel: k}
				var dst Image
				fastest := time.Duration(math.MaxInt64)
				for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
					start := time.Now()
					if err := o.run(&e, &dst, &m); err != nil {
						t.Fatal(err)
					}
					fastest = min(fastest, time.Since(start))
				}
				line += fmt.Sprintf(" %8.0f", float64(fastest)/1000)
			}
			fmt.Println(line)
		}
	}
}

// timedOperations returns one of each operation, with arguments as policies draw them.
func timedOperations(r *rand.Rand, width, height int) (list []operation) {
	seen := map[string]bool{}
	for _, o := range (numbers{r, 4}).operations(width, height) {
		switch o.name {
		case "affine", "perspective", "rotate", "blur", "brightness", "contrast", "color",
			"sharpness", "hue", "erase", "paste":
			continue
		case "grayscale", "posterize":
			if o.args[0] == 3 || o.args[0] == 0 {
				continue
			}
		}
		if !seen[o.name] {
			seen[o.name] = true
			list = append(list, o)
		}
	}
	add := func(name string, run func(e *Editor, dst, src *Image) error, args ...any) {
		list = append(list, operation{name: name, args: args, run: run})
	}
	for _, o := range (numbers{r, 3}).operations(width, height) {
		if len(o.args) == 1 && o.args[0] == 0.5 {
			list = append(list, o)
		}
	}
	add("hue", inPlace(func(k kernel, m *Image) { m.turn(k, 25) }), 0.1)
	w := float64(width)
	fill := [3]byte{128, 128, 128}
	rotated := rotation(17, width, height, nil)
	for _, f := range []Filter{Nearest, Bilinear, Bicubic} {
		for _, m := range [][6]float64{rotated, {1, 0.2, 0, 0, 1, 0}, {1, 0, 0.15 * w, 0, 1, 0}} {
			add("affine", func(e *Editor, dst, src *Image) error {
				e.Affine(dst, src, width, height, m, f, fill)
				return nil
			}, width, height, m, f.String(), fill)
		}
		p := [8]float64{1.1, 0.1, -5, 0.05, 1.1, -3, 0.0004, 0.0003}
		add("perspective", func(e *Editor, dst, src *Image) error {
			e.Perspective(dst, src, width, height, p, f, fill)
			return nil
		}, width, height, p, f.String(), fill)
	}
	for _, sigma := range []float64{0.5, 2} {
		add("blur", func(e *Editor, dst, src *Image) error {
			e.GaussianBlur(dst, src, float32(sigma), float32(sigma))
			return nil
		}, sigma, sigma)
		kernel := GaussianKernel(nil, 23, sigma, false)
		add("convolve", func(e *Editor, dst, src *Image) error {
			return e.Convolve(dst, src, kernel, kernel)
		}, [2]int{23, 23}, [2]float64{sigma, sigma})
	}
	return list
}
