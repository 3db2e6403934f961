package main

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// askTransform runs hdmlp transform, and returns its output and exit status.
func askTransform(t *testing.T, args ...string) (out, messages string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCommand()
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"transform"}, args...))
	cmd, err := root.ExecuteContextC(t.Context())
	code = exitCode(cmd, err)
	return stdout.String(), stderr.String(), code
}

// paintedPNG writes an image whose left half is red and whose right half is blue.
func paintedPNG(t *testing.T, name string, width, height int) string {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			c := color.NRGBA{200, 10, 0, 255}
			if x >= width/2 {
				c = color.NRGBA{0, 20, 250, 255}
			}
			m.SetNRGBA(x, y, c)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	if err := writePNG(path, m); err != nil {
		t.Fatal(err)
	}
	return path
}

func readPNG(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTransformShowsViews checks that the views of a sample are one picture, side by side.
func TestTransformShowsViews(t *testing.T) {
	path := paintedPNG(t, "a.png", 60, 40)
	args := []string{
		path, "--out", filepath.Join(t.TempDir(), "look"), "--transforms",
		"Views([[RandomResizedCrop(24), ToTensor()], [CenterCrop((9, 6)), ToTensor()]])",
	}
	out, messages, code := askTransform(t, args...)
	if code != 0 {
		t.Fatal(messages)
	}
	for _, want := range []string{
		"View 0 of a sample is 3 x 24 x 24 float32 (CHW), 6.75 KiB\n",
		"View 1 of a sample is 3 x 9 x 6 float32 (CHW), 648 B\n", "Views: RandomResizedCrop",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	out, messages, code = askTransform(t, append(args, "--json")...)
	var answer transformAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil || code != 0 {
		t.Fatal(err, messages)
	}
	if len(answer.Views) != 2 || answer.Views[1].Bytes != 648 {
		t.Errorf("views %+v", answer.Views)
	}
	if m := readPNG(t, answer.Images[0].Draws[0].File); m.Bounds() != image.Rect(0, 0, 30, 24) {
		t.Errorf("the picture has %v", m.Bounds())
	}
}

// TestTransformWritesPictures checks their pixels, normalised or not, and that the answer has the
// random parameters.
func TestTransformWritesPictures(t *testing.T) {
	a, b := paintedPNG(t, "a.png", 60, 40), paintedPNG(t, "b.png", 300, 500)
	dir := filepath.Join(t.TempDir(), "look")
	out, messages, code := askTransform(t, a, b, "--json", "--out", dir, "--count", "3", "--epoch",
		"5", "--sample", "10", "--seed", "7",
		"--transforms", "CenterCrop(40), RandomHorizontalFlip(1), ToTensor(), Normalize((0.485, "+
			"0.456, 0.406), (0.229, 0.224, 0.225))")
	if code != 0 {
		t.Fatal(messages)
	}
	var answer transformAnswer
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Images) != 2 || answer.Images[1].Sample != 11 ||
		len(answer.Images[1].Draws) != 3 || answer.Images[1].Draws[2].Epoch != 7 ||
		answer.Output.Bytes != 3*40*40*4 || answer.Output.Type != "float32" ||
		answer.Output.Layout != "CHW" || len(answer.Times) != 5 {
		t.Errorf("the answer is %s", out)
	}
	for _, img := range answer.Images {
		for _, d := range img.Draws {
			if len(d.Drawn) != 1 || d.Drawn[0].Transform != "RandomHorizontalFlip" ||
				d.Drawn[0].Parameters["flip"] != 1 {
				t.Errorf("%s: drawn is %v", d.File, d.Drawn)
			}
			m := readPNG(t, d.File)
			left, right := m.At(1, 1), m.At(38, 38)
			if m.Bounds().Dx() != 40 || left != (color.RGBA{0, 20, 250, 255}) ||
				right != (color.RGBA{200, 10, 0, 255}) {
				t.Errorf("%s has %v on the left, %v on the right", d.File, left, right)
			}
		}
	}
	if sheet := readPNG(t, answer.Sheet); sheet.Bounds().Dx() != 2*sheetMargin+4*sheetCell+
		3*sheetGap {
		t.Errorf("the contact sheet is %v", sheet.Bounds())
	}
}

// TestTransformContinuesAfterABadImage checks also the text for people.
func TestTransformContinuesAfterABadImage(t *testing.T) {
	good, bad := paintedPNG(t, "good.png", 60, 40), filepath.Join(t.TempDir(), "bad.jpg")
	if err := os.WriteFile(bad, []byte("\xff\xd8\xffnonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, messages, code := askTransform(t, bad, good, "--out", t.TempDir(), "--transforms",
		`[{"name": "ImgDecode", "mode": "L"}, {"name": "RandomResizedCrop", "size": 16}]`)
	if code != 1 || !strings.Contains(messages, "sample 0, "+bad+": ImgDecode: ") {
		t.Errorf("exit status %d, %s", code, messages)
	}
	for _, want := range []string{
		"A sample becomes 16 x 16 x 1 uint8 (HWC), 256 B\n", good + ", as sample 1\n",
		"001-good-epoch0.png\n", "RandomResizedCrop", "top=", "contact-sheet.png\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// TestTransformOfBadImagesAloneWritesNoSheet checks also that the fault is reported once.
func TestTransformOfBadImagesAloneWritesNoSheet(t *testing.T) {
	dir, bad := t.TempDir(), filepath.Join(t.TempDir(), "bad.jpg")
	if err := os.WriteFile(bad, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, messages, code := askTransform(t, bad, "--out", dir, "--transforms", "CenterCrop(40)")
	if code != 1 || strings.Count(out+messages, "not a JPEG") != 1 ||
		strings.Contains(out, "contact-sheet") {
		t.Errorf("exit status %d, %q, %q", code, out, messages)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v were written", names, err)
	}
}

// TestTransformReportsWrongInput before it writes anything.
func TestTransformReportsWrongInput(t *testing.T) {
	img := paintedPNG(t, "a.png", 6, 4)
	dir, pipe := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{"one image or more", nil},
		{"--transforms is missing", []string{img, "--out", dir}},
		{"--out is missing", []string{img, "--transforms", "CenterCrop(3)"}},
		{
			`did you mean "CenterCrop"?`,
			[]string{img, "--out", dir, "--transforms", "CentreCrop(3)"},
		},
		{
			"transforms[0] CenterCrop: size is not given",
			[]string{img, "--out", dir, "--transforms", "CenterCrop()"},
		},
		{"no fixed size", []string{img, "--out", dir, "--transforms", "Resize(3)"}},
		{"Ragged", []string{img, "--out", dir, "--transforms", "Resize(3), Ragged()"}},
		{"no picture", []string{img, "--out", dir, "--transforms", "Reshape(1, 2, 3)"}},
		{
			"--count is 0",
			[]string{img, "--out", dir, "--transforms", "CenterCrop(3)", "--count", "0"},
		},
		{
			"--epoch is -1",
			[]string{img, "--out", dir, "--transforms", "CenterCrop(3)", "--epoch", "-1"},
		},
		{
			"--sample is -1",
			[]string{img, "--out", dir, "--transforms", "CenterCrop(3)", "--sample", "-1"},
		},
		{"no such file", []string{img + "x", "--out", dir, "--transforms", "CenterCrop(3)"}},
		{"not a regular file", []string{pipe, "--out", dir, "--transforms", "CenterCrop(3)"}},
		{
			"not a regular file",
			[]string{"/dev/zero", "--out", dir, "--transforms", "CenterCrop(3)"},
		},
		{
			"not a regular file",
			[]string{filepath.Dir(img), "--out", dir, "--transforms", "CenterCrop(3)"},
		},
		{"--out", []string{img, "--out", img, "--transforms", "CenterCrop(3)"}},
		{
			"its parent directory " + dir + " does not exist",
			[]string{img, "--out", dir + "/look", "--transforms", "CenterCrop(3)"},
		},
		{"unknown flag", []string{img, "--size", "3"}},
	} {
		out, messages, code := askTransform(t, c.args...)
		if code != 2 || out != "" || !strings.Contains(messages, c.says) {
			t.Errorf("%q: exit status %d, %q does not say %q", c.args, code, messages, c.says)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%q made the directory", c.args)
		}
	}
}
